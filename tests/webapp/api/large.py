"""A state whose exports are larger than what sockets buffer, and how many snapshots are held to read it."""

from tests.webapp.flights import Flights
from tidegauge.state_backends import Catalog, Count, StateSpec

LARGE = StateSpec("large", key={"k": "bigint", "name": "text"}, measures={"n": Count()})
ROWS = 200_000


def add_large_state(flights: Flights) -> None:
    Catalog(flights.conn).register_states("flights", [LARGE], {"large": "exactly once"})
    flights.conn.execute(
        "INSERT INTO tidegauge_state.large (k, name, n, txid, updated_at) "
        "SELECT g, repeat('x', 200), g, 1, now() FROM generate_series(1, %s) g",
        [ROWS],
    )
    flights.conn.execute("ANALYZE tidegauge_state.large")


def snapshots(flights: Flights) -> int:
    """Return how many snapshots streams hold."""
    return flights.conn.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'"
    ).fetchone()[0]
