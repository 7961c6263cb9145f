"""The faults. Importing them registers them."""

from tests.soak.faults import connections, history, processes, resources, schema, servers, services, stores

REGISTERED = (processes, connections, servers, history, stores, schema, resources, services)
