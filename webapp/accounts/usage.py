"""Usage of API keys: requests, keys looked up, bytes and refusals, by hour and state.

Requests are counted in memory. A thread of each process adds the counts to the table, in one statement every
TIDEGAUGE_USAGE_FLUSH_SECONDS and when the process ends, so a killed process loses only what it has counted since the
last flush. Requests with a token count for its API key; requests with a session are not counted.
"""

import logging
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from multiprocessing.util import Finalize
from typing import Any

from django.conf import settings
from django.db import Error, connection
from django.db.models import Q, QuerySet, Sum
from django.http import HttpRequest
from django.utils import timezone
from prometheus_client import Counter

from tidegauge.webapp.accounts.models import ApiKey, UsageHour
from tidegauge.webapp.accounts.permissions import KeyScope
from tidegauge.webapp.core.metrics import REGISTRY

logger = logging.getLogger(__name__)

REFUSALS = frozenset({403, 429})
STATES = "/api/v1/states/"
HOUR_SECONDS = 3_600

# The most rows of one process between two flushes, to limit its memory; further ones are not counted.
MAX_ROWS = 20_000

FIGURES = ("requests", "keys", "bytes", "refusals")
ADD = """
INSERT INTO api_keys_usagehour AS stored (hour, prefix, state, requests, keys, bytes, refusals)
SELECT * FROM unnest(%s::timestamptz[], %s::text[], %s::text[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[])
ON CONFLICT (hour, prefix, state) DO UPDATE SET
    requests = stored.requests + excluded.requests,
    keys = stored.keys + excluded.keys,
    bytes = stored.bytes + excluded.bytes,
    refusals = stored.refusals + excluded.refusals
"""

METRICS = (
    Counter("tidegauge_key_requests", "Requests of an API key", ["key"], registry=REGISTRY),
    Counter("tidegauge_key_lookup_keys", "Keys that an API key has looked up", ["key"], registry=REGISTRY),
    Counter("tidegauge_key_sent_bytes", "Bytes of bodies sent to an API key", ["key"], registry=REGISTRY),
    Counter("tidegauge_key_refusals", "Requests of an API key refused by a 403 or 429", ["key"], registry=REGISTRY),
)

# Hour since the epoch, prefix, state.
Row = tuple[int, str, str]

_lock = threading.Lock()
_counts: dict[Row, list[int]] = {}
# Names that a request has been answered for, so there are at most as many as states.
_known_states: set[str] = set()


def observe(request: HttpRequest, status: int, keys_of: Mapping[str, int], sent: int) -> None:
    """Count an answered request of the API, if it has an API key. keys_of: keys looked up by state. sent: bytes."""
    match = request.resolver_match
    name = match.kwargs.get("name", "") if match and request.path_info.startswith(STATES) else ""
    # OPTIONS does not count for a state, because it is answered for any name, even of no state.
    observe_state(request, status, "" if request.method == "OPTIONS" else name, keys_of, sent)


def observe_state(
    request: Any, status: int, name: str, keys_of: Mapping[str, int] | None = None, sent: int = 0
) -> None:
    """Count a request as `observe` does. name: the requested state, used if `keys_of` is empty; "" for none."""
    key = getattr(request, "auth", None)
    if isinstance(key, ApiKey):
        counted = keys_of or {_counted_state(name, status, key): 0}
        count(key.prefix, counted, sent, refused=status in REFUSALS)


def count(prefix: str, keys_of: Mapping[str, int], sent: int, *, requests: int = 1, refused: bool = False) -> None:
    """Count a request for each state that it reads, with an equal share of its bytes. "" stands for no state."""
    if not settings.TIDEGAUGE_USAGE_FLUSH_SECONDS:
        return
    hour, share, rest = int(time.time()) // HOUR_SECONDS, *divmod(sent, len(keys_of))
    with _lock:
        for state, keys in keys_of.items():
            figures = _counts.get((hour, prefix, state))
            if figures is None:
                if len(_counts) >= MAX_ROWS:
                    continue
                figures = _counts[hour, prefix, state] = [0, 0, 0, 0]
            figures[0] += requests
            figures[1] += keys
            figures[2] += share + rest
            figures[3] += refused
            rest = 0
    _flusher.ensure_started()


def flush() -> None:
    """Add the counts to the table. If the database is unavailable, keep them for the next flush."""
    global _counts
    with _lock:
        counts, _counts = _counts, {}
    if not counts:
        return
    try:
        _add(counts)
    except Error as error:
        logger.warning("usage of API keys is kept in memory until the database answers: %s", error)
        _put_back(counts)
        return
    for (_, prefix, _), figures in counts.items():
        for metric, figure in zip(METRICS, figures, strict=True):
            metric.labels(prefix).inc(figure)


def forget_old() -> None:
    """Delete what is older than TIDEGAUGE_AUDIT_KEEP_DAYS. Part of the schedule."""
    horizon = timezone.now() - timedelta(days=settings.TIDEGAUGE_AUDIT_KEEP_DAYS)
    UsageHour.objects.filter(hour__lt=horizon).delete()


def since(hours: int, *, prefix: str = "", state: str = "") -> QuerySet[UsageHour]:
    """Return the rows of the last hours, the newest first. prefix, state: only those of one API key or one state."""
    wanted = {name: word for name, word in {"prefix": prefix, "state": state}.items() if word}
    return UsageHour.objects.filter(hour__gt=timezone.now() - timedelta(hours=hours), **wanted)


def after(rows: QuerySet[UsageHour], last: UsageHour) -> QuerySet[UsageHour]:
    """Return the rows that come after one of them."""
    hour, prefix, state = last.hour, last.prefix, last.state
    same_hour = Q(hour=hour, prefix__gt=prefix) | Q(hour=hour, prefix=prefix, state__gt=state)
    return rows.filter(Q(hour__lt=hour) | same_hour)


def totals(rows: QuerySet[UsageHour]) -> dict[str, int]:
    return {name: total or 0 for name, total in rows.aggregate(**{name: Sum(name) for name in FIGURES}).items()}


def _counted_state(name: str, status: int, key: ApiKey) -> str:
    if name and status < 400:
        _known_states.add(name)
        return name
    # Only known names, because clients could invent any number of them; and only those within the key scope, because a
    # row must not reveal which other states exist.
    return name if name in _known_states and not key.key_prefix and KeyScope.of(key).sees(name) else ""


def _add(counts: Mapping[Row, list[int]]) -> None:
    # Sorted, so that two processes lock rows in the same order and cannot deadlock.
    rows = [
        (datetime.fromtimestamp(hour * HOUR_SECONDS, UTC), prefix, state, *figures)
        for (hour, prefix, state), figures in sorted(counts.items())
    ]
    with connection.cursor() as cursor:
        cursor.execute(ADD, [list(column) for column in zip(*rows, strict=True)])


def _put_back(counts: dict[Row, list[int]]) -> None:
    with _lock:
        for row, figures in counts.items():
            newer = _counts.get(row)
            if newer is not None:
                _counts[row] = [old + new for old, new in zip(figures, newer, strict=True)]
            elif len(_counts) < MAX_ROWS:
                _counts[row] = figures


class _Flusher:
    """The thread that flushes. It starts with the first request that the process counts."""

    def __init__(self) -> None:
        self._starting = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def ensure_started(self) -> None:
        if self._thread is not None:
            return
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="usage", daemon=True)
                self._thread.start()
                # Not atexit, because a server's worker that multiprocessing has forked ends without running it.
                Finalize(None, self.end, exitpriority=10)

    def end(self) -> None:
        """Flush once more, and wait for it. Called after the server has answered its last request."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(settings.TIDEGAUGE_STATEMENT_TIMEOUT_MS / 1000)

    def _run(self) -> None:
        is_stopped = False
        while not is_stopped:
            is_stopped = self._stopped.wait(settings.TIDEGAUGE_USAGE_FLUSH_SECONDS)
            try:
                flush()
            except Exception:
                logger.exception("usage of API keys was not stored")
            finally:
                # Closed, because the thread would hold one of the database's connections until the next flush.
                connection.close()


_flusher = _Flusher()
