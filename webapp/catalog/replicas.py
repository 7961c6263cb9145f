"""Read replicas: streaming standbys that answer lookups, entries, histories and exports in place of the primary.

A replica's answer names the replica's batch and epoch, read in the same snapshot as the values, so it is as exact as
the primary's, but may be earlier. A thread checks every replica once a second. A replica that is lost, too far behind,
promoted or no standby of this primary is left out, and comes back by itself. If a replica cannot answer, another one or
the primary is asked: for example if it has not replayed the batch, has cancelled the query to replay the log, or does
not know the state yet. So a request never fails because of a replica.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from itertools import count
from typing import TypeVar

import psycopg
from django.conf import settings

from tidegauge.webapp.catalog import readers
from tidegauge.webapp.catalog.replica import SILENT_SECONDS, Replica, cut_if_silent, no_answer, shut_down
from tidegauge.webapp.catalog.standing import Facts, LogPositions, Standing, facts, judge
from tidegauge.webapp.core.metrics import replica_read
from tidegauge.webapp.core.pooler import PoolerError

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")
Question = Callable[[psycopg.Connection], Answer]

CHECK_SECONDS = 1.0
# Replicas that one request may ask before the primary.
TRIES = 2


class BehindError(Exception):
    """The replica has not replayed the batch that was asked for."""


class Replicas:
    """All replicas of this process, and the thread that checks them; it starts with the first question."""

    def __init__(self, conninfos: Sequence[str], most_lag_seconds: float) -> None:
        self.all = [Replica(conninfo) for conninfo in conninfos]
        self._most_lag_seconds = most_lag_seconds
        self._positions = LogPositions()
        self._primary: psycopg.Connection | None = None
        self._refusal = ""
        self._turns = count()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._was_checked, self._ended = threading.Event(), threading.Event()

    def usable(self) -> list[Replica]:
        """Return the replicas that a request may ask, starting with another one each time to spread the load."""
        if not self.all:
            return []
        self._start()
        found = [replica for replica in self.all if replica.is_used]
        first = next(self._turns) % len(found) if found else 0
        return (found[first:] + found[:first])[:TRIES]

    def standings(self) -> list[Standing]:
        """Return the standing of each replica. Waits for the first check of this process."""
        if self.all:
            self._start()
            self._was_checked.wait(2 * SILENT_SECONDS)
        return [replica.current_standing for replica in self.all]

    def check(self) -> None:
        """Ask the primary, then all replicas at once."""
        with suppress(psycopg.Error):
            self._add_position()
        with ThreadPoolExecutor(len(self.all)) as threads:
            list(threads.map(self._check, self.all))
        self._was_checked.set()

    def close(self) -> None:
        """End the thread and all connections."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        for replica in self.all:
            replica.cut()
        if self._primary is not None:
            self._primary.close()

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="replicas", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        # A quarter of the allowed lag, because lags shorter than the interval cannot be measured.
        interval = min(CHECK_SECONDS, self._most_lag_seconds / 4)
        while not self._ended.is_set():
            try:
                self.check()
            except Exception:
                # The loop must continue, because without checks every replica is left out after a while.
                logger.exception("the check of the replicas failed")
            self._ended.wait(interval)

    def _add_position(self) -> None:
        try:
            self._positions.add(self._ask_primary())
        except PoolerError as error:
            # Logged once per cause, because this is tried again every second.
            if str(error) != self._refusal:
                logger.error("replicas cannot be compared with the primary: %s", error)
            self._refusal = str(error)
        else:
            self._refusal = ""

    def _ask_primary(self) -> Facts:
        if self._primary is None or self._primary.closed:
            self._primary = readers.own_statements()
        conn = self._primary
        with cut_if_silent(lambda: shut_down(conn)):
            return facts(conn)

    def _check(self, replica: Replica) -> None:
        try:
            found = replica.ask()
        except psycopg.Error as error:
            replica.stand(Standing(replica.name, no_answer(error), None, time.monotonic()))
            return
        reason, lag = judge(found, self._positions, self._most_lag_seconds)
        replica.stand(Standing(replica.name, reason, lag, found.asked_at))


# The replicas of this process; without addresses it does nothing.
configured = Replicas(settings.DATABASE_REPLICA_URLS, settings.TIDEGAUGE_REPLICA_MAX_LAG_SECONDS)


def read(question: Question[Answer], on_primary: Callable[[], Answer] | None = None) -> Answer:
    """Return a replica's answer to a question that changes nothing, or the primary's.

    on_primary: asks the primary in place of `readers.read`, for a question that waits there. After an error of a
    replica the next server is asked, because the replica may be behind, except after a statement's time limit.
    """

    def ask(replica: Replica) -> Answer:
        with replica.lent() as conn:
            return question(conn)

    def ask_primary() -> Answer:
        return readers.read(question) if on_primary is None else on_primary()

    return _first_answer(ask, ask_primary)


def own_connection(resources: ExitStack, question: Question[Answer]) -> Answer:
    """Return the answer over a connection that is kept until `resources` close: a replica's, or the primary's."""

    def ask(replica: Replica) -> Answer:
        with ExitStack() as attempt:
            conn = replica.connect()
            attempt.callback(replica.close, conn)
            answer = question(conn)
            conn.check_promotion()
            resources.push(attempt.pop_all())
        return answer

    return _first_answer(ask, lambda: question(resources.enter_context(readers.own_connection("an export"))))


def _first_answer(ask: Callable[[Replica], Answer], ask_primary: Callable[[], Answer]) -> Answer:
    for replica in configured.usable():
        try:
            answer = ask(replica)
        except psycopg.errors.QueryCanceled:
            raise  # the time limit: another server would take as long
        except readers.PrimaryOnlyError:
            break
        except Exception as error:
            replica.failed(error)
        else:
            replica_read(replica.name)
            return answer
    return ask_primary()
