"""Event streams."""

from tidegauge.webapp.core.settings.environment import env

# URL of the events process, for the dashboard; empty: the same origin, where a proxy routes /events/ to it.
TIDEGAUGE_EVENTS_URL = env.str("TIDEGAUGE_EVENTS_URL", default="").rstrip("/")
# Other origins whose pages may open event streams with the user's session, such as https://tidegauge.example.
TIDEGAUGE_EVENTS_ORIGINS = env.list("TIDEGAUGE_EVENTS_ORIGINS", default=[])
# Interval of comments on an idle stream, so that proxies keep it open.
TIDEGAUGE_EVENTS_HEARTBEAT_SECONDS = env.float("TIDEGAUGE_EVENTS_HEARTBEAT_SECONDS", default=15.0)
# A client that reads nothing for this long is disconnected.
TIDEGAUGE_EVENTS_SLOW_SECONDS = env.float("TIDEGAUGE_EVENTS_SLOW_SECONDS", default=20.0)
# Clients per process, and per API key or user.
TIDEGAUGE_EVENTS_MAX_CLIENTS = env.int("TIDEGAUGE_EVENTS_MAX_CLIENTS", default=4_000)
TIDEGAUGE_EVENTS_MAX_CLIENTS_EACH = env.int("TIDEGAUGE_EVENTS_MAX_CLIENTS_EACH", default=200)
# Changes sent per batch, and missed batches sent to a client that reconnects; beyond these it reads the state again.
TIDEGAUGE_EVENTS_MAX_CHANGES = TIDEGAUGE_EVENTS_MAX_BATCHES = 1_000
