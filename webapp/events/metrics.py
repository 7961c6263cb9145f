"""What the push counts of itself, among what every serving process counts."""

from prometheus_client import Counter, Gauge

from webapp.observability.metrics import REGISTRY

CLIENTS = Gauge(
    "tidemark_sse_clients", "Clients that listen for events now", multiprocess_mode="livesum", registry=REGISTRY
)
EVENTS = Counter("tidemark_sse_events", "Events sent to clients, by what they are", ["event"], registry=REGISTRY)
DROPPED = Counter("tidemark_sse_dropped", "Clients dropped because they read nothing for too long", registry=REGISTRY)
