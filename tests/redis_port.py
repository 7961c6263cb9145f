"""Ports for the Redis servers that tests start, kill and start again, also while other tests run on this machine."""

import socket
from contextlib import suppress

# Below the ports that the system gives to connections, so that none has a server's port when that starts again.
FIRST, END = 10_000, 20_000
# The traffic between the nodes of a cluster takes a port this much further on.
BUS = 10_000

_kept: list[socket.socket] = []


def reserved_port() -> int:
    """Return a free port that no other process of tests takes while this one lives."""
    for port in range(FIRST, END):
        # UDP has ports of its own, so one of them can be kept bound, whatever the server does.
        mark = socket.socket(type=socket.SOCK_DGRAM)
        with suppress(OSError), socket.socket() as server, socket.socket() as bus:
            mark.bind(("127.0.0.1", port))
            server.bind(("127.0.0.1", port))
            bus.bind(("127.0.0.1", port + BUS))
            _kept.append(mark)
            return port
        mark.close()
    raise AssertionError(f"no port from {FIRST} to {END} is free")
