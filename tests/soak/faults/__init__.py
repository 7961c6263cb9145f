"""The faults. Importing them registers them."""

from tests.soak.faults import connections, processes, servers

REGISTERED = (processes, connections, servers)
