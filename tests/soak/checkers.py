"""Checkers: read all the while, and note every answer that no run without faults could have given.

An answer that does not come (a server is away) or is refused by an error of the product is counted, not noted.
"""

import http.client
import itertools
import json
import threading
import time
import urllib.error
import urllib.parse
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import psycopg

from tests.soak.services import Services
from tests.soak.transfers import ACCOUNTS, MODULUS, state_names
from tidegauge.state_backends import Catalog, state_reader
from tidegauge.state_backends.errors import BackendUnavailable, TidegaugeError
from tidegauge.state_backends.reader.multi_state import StateLookup, at_one_batch

PAUSE_SECONDS = 0.25
CONNECT = "-c statement_timeout=10s -c lock_timeout=10s"
KEYS = [(account,) for account in ACCOUNTS]


# Epoch, txid and attempt.
Identity = tuple[str, int, int]


class Seen(NamedTuple):
    """One answer. left: what is not zero, where the answer is not of one whole batch. identity: if it says."""

    txid: int
    left: int
    transfers: int
    identity: Identity | None = None


@dataclass
class Findings:
    """What the checkers have seen. deviations: sentences. answers, refused: by checker. unavailable: no answer."""

    deviations: list[str] = field(default_factory=list)
    answers: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    unavailable: int = 0


class Watermark:
    """What one reader has seen: the newest batch, below which it must not fall, and what each batch held.

    A batch is known by epoch, txid and attempt, whatever happens to the ledger: its content never changes.

    slack: how many batches it may fall at any time: an opaque source may bring the committed batch again.
    loose: while a fault takes the ledger back on purpose, or makes it revert a commit, txids are not compared.
    """

    def __init__(self, slack: int) -> None:
        self.loose = False
        self._slack, self._txid, self._transfers = slack, 0, 0
        self._held: dict[Identity, int] = {}

    def fault(self, txid: int, transfers: int, identity: Identity | None) -> str | None:
        """Return what is wrong with an answer, if anything is. identity: None where the answer does not say."""
        if identity is not None and (held := self._held.setdefault(identity, transfers)) != transfers:
            return f"batch {identity} held {held} transfers and holds {transfers}"
        before, counted = self._txid, self._transfers
        if self.loose:
            before = counted = 0
        self._txid, self._transfers = max(before, txid), max(counted, transfers)
        if txid < before - self._slack:
            return f"batch {txid} after batch {before}"
        if txid == before and transfers != counted and not self._slack and counted:
            return f"batch {txid} held {counted} transfers and holds {transfers}"
        return None


class Checkers:
    """The readers of one pipeline, each in a thread. url: the database. services: web and events, if they run."""

    def __init__(self, url: str, pipeline: str, *, slack: int, services: Services | None = None) -> None:
        self.findings = Findings()
        self._url, self._pipeline, self._services = url, pipeline, services
        self._stopping = threading.Event()
        self._pauses, self._is_paused = 0, False
        watched: dict[str, Callable[[psycopg.Connection], Seen]] = {
            "combined": self._combined,
            "looked up": self._looked_up,
            "exported": self._exported,
        }
        if services is not None:
            watched["asked by REST"] = lambda conn: self._asked()
        self._marks = {name: Watermark(slack) for name in [*watched, "heard"]}
        self._threads = [
            threading.Thread(target=self._watch, args=(name, ask), name=name, daemon=True)
            for name, ask in watched.items()
        ]
        if services is not None:
            self._threads.append(threading.Thread(target=self._listen, name="heard", daemon=True))
        for thread in self._threads:
            thread.start()

    @contextmanager
    def loosened(self, loose: bool) -> Iterator[None]:
        """Do not compare txids within the block, if `loose`."""
        for mark in self._marks.values():
            mark.loose = loose
        try:
            yield
        finally:
            for mark in self._marks.values():
                mark.loose = False

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Check no answer within the block, nor one that was asked for in it."""
        self._pauses += 1
        self._is_paused = True
        try:
            yield
        finally:
            self._is_paused = False
            self._pauses += 1

    def close(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _watch(self, name: str, ask: Callable[[psycopg.Connection], Seen]) -> None:
        for conn in self._connections():
            try:
                while not self._stopping.wait(PAUSE_SECONDS):
                    pauses = self._pauses
                    answer = ask(conn)
                    if pauses == self._pauses and not self._is_paused:
                        self._check(name, answer)
            except urllib.error.HTTPError as error:
                self.findings.refused[f"{name}: {error.code}"] += 1
            except (psycopg.Error, BackendUnavailable, OSError, http.client.HTTPException):
                self.findings.unavailable += 1
            except TidegaugeError as error:
                self.findings.refused[f"{name}: {type(error).__name__}"] += 1
            except Exception as error:
                self._note(f"{name}: {type(error).__name__}: {error}")
            finally:
                conn.close()

    def _connections(self) -> Iterator[psycopg.Connection]:
        while not self._stopping.wait(PAUSE_SECONDS):
            try:
                yield psycopg.connect(self._url, autocommit=True, options=CONNECT, connect_timeout=3)
            except psycopg.Error:
                self.findings.unavailable += 1

    def _check(self, name: str, seen: Seen) -> None:
        self.findings.answers[name] += 1
        if seen.left:
            self._note(f"{name}: batch {seen.txid} is not whole: {seen.left} left over, of {seen.transfers} transfers")
        if fault := self._marks[name].fault(seen.txid, seen.transfers, seen.identity):
            self._note(f"{name}: {fault}")

    def _note(self, deviation: str) -> None:
        if deviation not in self.findings.deviations[-20:]:
            self.findings.deviations.append(deviation)

    def _combined(self, conn: psycopg.Connection) -> Seen:
        """Both states folded to one value each, at one batch."""
        debits, credits_ = at_one_batch(conn, [StateLookup(self._reader(conn, n), KEYS, combine=True) for n in (0, 1)])
        paid, got = (answer.parsed()[0]["value"] for answer in (debits, credits_))
        left = abs(paid["total"] - got["total"]) + abs(paid["n"] - got["n"])
        return Seen(debits.txid, left, paid["n"], _identity(debits))

    def _looked_up(self, conn: psycopg.Connection) -> Seen:
        """Every account of both states, at one batch."""
        answers = at_one_batch(conn, [StateLookup(self._reader(conn, n), KEYS) for n in (0, 1)])
        return Seen(answers[0].txid, *_left_over(*(answer.parsed() for answer in answers)), _identity(answers[0]))

    def _exported(self, conn: psycopg.Connection) -> Seen:
        """One state, in pieces of a long read."""
        with self._reader(conn, 1).export(measures=["n", "total"]) as export:
            rows = list(itertools.chain.from_iterable(export.batches()))
        left = sum(total for _, _, total in rows) % MODULUS
        return Seen(export.txid, left, sum(n for _, n, _ in rows), _identity(export))

    def _asked(self) -> Seen:
        """Every account of both states, by REST."""
        assert self._services is not None
        lookups = [{"state": name, "keys": [list(key) for key in KEYS]} for name in state_names(self._pipeline)]
        with self._services.request(self._services.web_url, "/api/v1/lookup", {"lookups": lookups}) as response:
            answer = json.load(response)
        return Seen(answer["txid"], *_left_over(*(part["results"] for part in answer["answers"])))

    def _listen(self) -> None:
        """Follow the events of one state, each of which brings whole batches; resume where a stream has ended."""
        events = EventStream(self._services, state_names(self._pipeline)[0], self._stopping)
        while not self._stopping.wait(PAUSE_SECONDS):
            try:
                for seen in events.read():
                    if not self._is_paused:
                        self._check("heard", seen)
            except urllib.error.HTTPError as error:
                self.findings.refused[f"heard: {error.code}"] += 1
            except (OSError, http.client.HTTPException):
                self.findings.unavailable += 1
            except Exception as error:
                self._note(f"heard: {type(error).__name__}: {error}")

    def _reader(self, conn: psycopg.Connection, place: int) -> Any:
        name = state_names(self._pipeline)[place]
        return state_reader(conn, Catalog(conn).get(name))


class EventStream:
    """All accounts of one state as its events tell them, over as many connections as it takes."""

    def __init__(self, services: Services | None, state: str, stopping: threading.Event) -> None:
        assert services is not None
        keys = urllib.parse.quote(json.dumps([list(key) for key in KEYS]))
        self._services, self._stopping, self._path = services, stopping, f"/events/states/{state}?keys={keys}"
        self._last_id = ""
        self._values: dict[str, dict[str, int]] = {}

    def read(self) -> Iterator[Seen]:
        """Yield after each event what its batch holds. Raises OSError."""
        resume = {"Last-Event-ID": self._last_id} if self._last_id else {}
        with self._services.request(self._services.events_url, self._path, **resume) as stream:
            # A line comes with each heartbeat at least.
            for line in stream:
                if self._stopping.is_set():
                    return
                field_name, _, text = line.decode().rstrip("\n").partition(": ")
                if field_name == "id":
                    self._last_id = text
                elif field_name == "data" and text:
                    yield from self._take(json.loads(text))

    def _take(self, data: dict[str, Any]) -> Iterator[Seen]:
        if "results" in data:
            self._values = {}
        for row in data.get("results", data.get("changes", ())):
            self._values[row["key"][0]] = row["value"] or {"n": 0, "total": 0}
        if "results" in data or "changes" in data:
            total, n = (sum(value[name] for value in self._values.values()) for name in ("total", "n"))
            yield Seen(data["txid"], total % MODULUS, n)


def _identity(answer: Any) -> Identity:
    return answer.epoch, answer.txid, answer.attempt


def _left_over(debits: list[dict[str, Any]], credits_: list[dict[str, Any]]) -> tuple[int, int]:
    """Return what is left where the two sides should be equal, and the number of transfers."""
    sums = [
        [sum(row["value"][name] for row in rows if row["value"]) for name in ("n", "total")]
        for rows in (debits, credits_)
    ]
    return sum(abs(one - other) for one, other in zip(*sums, strict=True)), sums[0][0]


def values(url: str, pipeline: str, deadline_seconds: float = 5.0) -> dict[str, dict[str, dict[str, int]]]:
    """Return what both states hold now: side to account to measures. Raises psycopg.Error, TidegaugeError."""
    until = time.monotonic() + deadline_seconds
    with psycopg.connect(url, autocommit=True, options=CONNECT, connect_timeout=5) as conn:
        readers = [state_reader(conn, Catalog(conn).get(name)) for name in state_names(pipeline)]
        while True:
            try:
                answers = at_one_batch(conn, [StateLookup(reader, KEYS) for reader in readers])
                break
            except TidegaugeError:
                if time.monotonic() > until:
                    raise
    return {
        side: {
            row["key"][0]: {name: row["value"][name] for name in ("n", "total")}
            for row in answer.parsed()
            if row["status"] == "found"
        }
        for side, answer in zip(("debits", "credits"), answers, strict=True)
    }
