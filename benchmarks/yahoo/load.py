"""Sends events to Kafka at a rate, from another process than those that are measured."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from benchmarks.kafka_broker import Broker
from benchmarks.yahoo.events import Events

TICK_SECONDS = 0.01
AT_ONCE = 5_000  # events per write, so that a sender that has fallen behind does not send a second's events at once
FLUSH_SECONDS = 120


class Load:
    """Sends the events of a topic. behind: the longest time in seconds by which an event was sent too late."""

    def __init__(self, events: Events, process: "subprocess.Popen[bytes]") -> None:
        self._events, self._process = events, process
        self.behind = 0.0

    def at_rate(self, rate: int, seconds: float) -> None:
        """Send `rate` events a second. An event's time is the one at which it is due, however late it is sent."""
        assert self._process.stdin is not None
        started, sent, total = time.time(), 0, int(rate * seconds)
        while sent < total:
            due = min(int((time.time() - started) * rate), total, sent + AT_ONCE)
            if due <= sent:
                time.sleep(TICK_SECONDS)
                continue
            times = (1000 * started + np.arange(sent, due) * 1000 / rate).astype(np.int64)
            self._process.stdin.write(self._events.lines(times))
            self._process.stdin.flush()
            self.behind = max(self.behind, time.time() - started - sent / rate)
            sent = due


@contextmanager
def sending(broker: Broker, topic: str, events: Events) -> Iterator[Load]:
    """Yield the load of a topic. When the block ends, all of its events are in Kafka.

    Raises RuntimeError if the sender has failed.
    """
    process = broker.sender(topic)
    try:
        yield Load(events, process)
        assert process.stdin is not None
        process.stdin.close()
        if process.wait(FLUSH_SECONDS):
            raise RuntimeError(f"Kafka's producer ended with {process.returncode}; see {broker.log}")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
