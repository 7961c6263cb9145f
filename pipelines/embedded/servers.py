"""Starts an embedded server for each address that the environment does not set."""

import atexit
import os
from collections.abc import Callable, MutableMapping

from tidegauge.pipelines.embedded.data_dir import data_dir
from tidegauge.pipelines.embedded.postgres import EmbeddedPostgres
from tidegauge.pipelines.embedded.redis import EmbeddedRedis
from tidegauge.pipelines.embedded.shared_server import Server, SharedServer
from tidegauge.pipelines.errors import RuntimeSetupError

# Those that this process uses.
_joined: list[SharedServer] = []

SERVERS: dict[str, Callable[..., Server]] = {"DATABASE_URL": EmbeddedPostgres, "REDIS_URL": EmbeddedRedis}


def ensure_servers(environ: MutableMapping[str, str] = os.environ, *, durable: bool = True) -> None:
    """Set `DATABASE_URL` and `REDIS_URL`, if they are unset, to servers embedded in the data folder.

    durable: False trades safety against a power cut for speed; it applies only to a server that is not running yet.
    Raises RuntimeSetupError if a server cannot be started.

    This process uses the servers until it exits. Its child processes inherit the two variables, but do not
    keep the servers running.
    """
    for variable, server in SERVERS.items():
        if not environ.get(variable):
            environ[variable] = _join(server(data_dir(environ), durable=durable))


def are_used() -> bool:
    """Return whether this process uses an embedded server, which it may have to stop when it ends."""
    return bool(_joined)


def _join(server: Server) -> str:
    shared = SharedServer(server)
    atexit.register(shared.leave)
    _joined.append(shared)
    try:
        return shared.join()
    except OSError as error:
        raise RuntimeSetupError(
            f"embedded {server.name} in {str(server.home)!r}: {error}; "
            "set TIDEGAUGE_HOME to a folder that you can write to"
        ) from error
