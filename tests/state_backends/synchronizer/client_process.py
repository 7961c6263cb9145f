"""A client in a process of its own, for races."""

import psycopg

from tests.state_backends.synchronizer.updates import apply, increment
from tidegauge.state_backends.synchronizer.synchronizer import StateSynchronizer


def count(url: str, name: str, times: int) -> int:
    """Count up `times` times, compacting now and then. Returns the last state."""
    with psycopg.connect(url, autocommit=True) as conn:
        client = StateSynchronizer(conn, name, apply)
        for number in range(times):
            client.update_state(increment)
            if number % 10 == 9:
                client.compact()
        return int(client.state)
