"""52 pipelines in many verdicts beside the states that are hard to show, for pictures of pages with much on them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pyarrow as pa
from django.contrib.auth.models import User
from django.utils import timezone

from tests.webapp.boards import CROWDED, make_board
from tests.webapp.flights import Flights, flights_pipeline
from tests.webapp.flights_database import fill
from tests.webapp.wide_states import visits_pipeline
from tidegauge.state_backends import BatchLedger, Catalog, Count, PostgresBackingMap, StateSpec
from tidegauge.state_backends.dead_letters.letters import DeadLetter
from tidegauge.state_backends.ledger import driver_status
from tidegauge.state_backends.ledger.batch import lock_fence
from tidegauge.webapp.accounts.services import create_api_key
from tidegauge.webapp.catalog import queries, readers
from tidegauge.webapp.notify.alerts.acknowledged import acknowledge
from tidegauge.webapp.notify.alerts.models import Alert, AlertRule, Silence, VerdictPeriod

COUNT = 52
TIMEOUT = "SocketTimeout: reading from db-{} took longer than 30 s\n  at org.apache.kafka.clients.consumer.poll"
MISSING = "no such column 'carrier' in s3://landing/orders/2026/03/10/part-00017-of-00240-with-a-long-name.json"

# What each of them reports: the verdict that it has then, the status of its driver, its message, and its pending input.
# `lost`: the driver has ended without a word.
REPORTS: list[tuple[str, str, str, dict[str, Any]]] = [
    ("failed", "failed", TIMEOUT, {}),
    ("failed", "failed", TIMEOUT, {}),
    ("failed", "failed", MISSING, {}),
    ("lost", "lost", "", {}),
    ("retrying", "restarting", TIMEOUT, {}),
    ("stale", "running", "", {"count": 12_400, "minutes": 95}),
    ("source alarm", "running", "", {"count": 0, "alarm": "the replication slot keeps 12 GB of the server's log"}),
    ("paused", "paused", "", {"count": 40, "minutes": 2}),
    ("stopped", "stopped", "", {}),
    ("starting", "starting", "", {}),
    ("finished", "finished", "", {"count": 0}),
    ("catching up", "running", "", {"count": 275, "minutes": 0.4}),
    ("never started", "", "", {}),
    ("rejecting", "running", "", {"count": 0}),
    ("falling behind", "running", "", {"count": 900, "minutes": 4}),
    ("reprocess failed", "running", "", {"count": 0}),
]
REJECTED = 2_000
HISTORY_BATCHES = 60
SHOPS = 5_000
NAMES = ["payments_orders", "shipping_events", "auth_sessions", "search_clicks", "каталог_заказов", "注文_イベント"]


def _name(place: int) -> str:
    name = NAMES[place % len(NAMES)]
    return name if place < len(NAMES) else f"{name}_{place}"


def _join(conn: psycopg.Connection, place: int, now: datetime) -> str:
    """Add a pipeline with a state; those after the reports are well."""
    name = _name(place)
    _, status, message, pending = REPORTS[place] if place < len(REPORTS) else ("", "running", "", {"count": 0})
    spec = StateSpec(f"orders_{place}_by_shop", key={"shop": "text"}, measures={"orders": Count()})
    catalog = Catalog(conn)
    catalog.register_pipeline(name, spout="opaque", description=f"Orders per shop from the topic {name}.v2")
    if not status:
        return name
    ledger = BatchLedger(conn, name)
    ledger.acquire()
    catalog.register_states(name, [spec], {spec.name: "exactly once"})
    ledger.bind("checkpoint")
    for number in range(2):
        batch = ledger.begin(number, spout="opaque")
        assert batch is not None
        rejected = REJECTED if _verdict(place) == "rejecting" else 0
        ledger.commit(batch, rows_in=1_000 * (place + 1), keys_written={spec.name: 10}, dead_letters=rejected)
    minutes = pending.pop("minutes", None) if pending else None
    oldest = None if minutes is None else (now - timedelta(minutes=minutes)).isoformat()
    progress = {"pending": {"unit": "records", "oldest": oldest} | pending} if pending else None
    reported = "running" if status == "lost" else status
    driver_status.report(
        conn, name, reported, message.format(place), progress, failures=3 if message else 0, max_failures=8
    )
    if status in ("failed", "lost", "stopped", "finished"):
        ledger.release()
    if _verdict(place) == "falling behind":
        _was_less_behind(conn, name, now)
    if _verdict(place) == "reprocess failed":
        _reprocess(conn, name)
    return name


def _verdict(place: int) -> str:
    return REPORTS[place][0] if place < len(REPORTS) else "well"


def _was_less_behind(conn: psycopg.Connection, name: str, now: datetime) -> None:
    """Make the lag grow: eight minutes ago, after the first batch, it was a quarter of what it is now."""
    metrics = {"lag_seconds": 60.0, "pending": {"count": 100, "unit": "records"}}
    conn.execute(
        "UPDATE tidegauge.batch SET metrics = %s, started_at = %s + txid * interval '1 min', "
        "committed_at = %s + txid * interval '1 min' WHERE pipeline = %s",
        [json.dumps(metrics), *[now - timedelta(minutes=9)] * 2, name],
    )


def _reprocess(conn: psycopg.Connection, name: str) -> None:
    """A reprocess whose driver has failed, as it is recorded."""
    again = f"{name}@reprocess"
    conn.execute(
        "INSERT INTO tidegauge.pipeline (name, spout, description, reprocesses) VALUES (%s, 'opaque', '', %s)",
        [again, name],
    )
    ledger = BatchLedger(conn, again)
    ledger.acquire()
    driver_status.report(conn, again, "failed", MISSING, failures=1, max_failures=1)
    ledger.release()


def _history(names: list[str], now: datetime) -> None:
    """A week in which each pipeline had its verdict of now for some hours, some of them more than once."""
    for place, name in enumerate(names):
        verdict = _verdict(place)
        bad = verdict if verdict not in ("starting", "finished", "catching up", "never started") else "well"
        for hours, length, kind in ((160, 60, "well"), (100, 2, bad), (98, 96, "well"), (2, 2, bad)):
            began = now - timedelta(hours=hours)
            until = began + timedelta(hours=length)
            VerdictPeriod.objects.create(
                pipeline=name, verdict=kind, reason="as recorded", began_at=began, until=until, is_current=until == now
            )


def _alerts(names: list[str], now: datetime) -> None:
    rule = AlertRule.objects.create(
        name="on call", verdicts=["failed", "lost", "stale", "retrying"], mail_to=["on-call@example.com"]
    )
    AlertRule.objects.create(name="falling behind for ten minutes", verdicts=["stale"], lag_seconds=300,
                             after_seconds=600, mail_to=["team@example.com"], enabled=False)  # fmt: skip
    for place, name in enumerate(names[:6]):
        verdict = REPORTS[place][0]
        Alert.objects.create(rule=rule, pipeline=name, verdict=verdict, told=verdict,
                             reason=f"its driver says: {verdict}", began_at=now - timedelta(hours=2))  # fmt: skip
    for day in range(60):
        began = now - timedelta(hours=6 * day + 8)
        Alert.objects.create(rule=rule, pipeline=names[day % 6], verdict="lost", told=Alert.OVER,
                             reason="its driver stopped responding", began_at=began,
                             ended_at=began + timedelta(minutes=20))  # fmt: skip
    Silence.objects.create(pipeline=names[3], until=now + timedelta(hours=9), reason="a disk is replaced")


@contextmanager
def crowd(admin: User, now: datetime) -> Iterator[list[str]]:
    """The paths of pages with much on them. now: the time of the database's clock."""
    with readers.own_connection() as conn, flights_pipeline(conn) as flights, visits_pipeline(conn, now):
        fill(flights)
        _rejected(flights)
        conn.execute("UPDATE tidegauge.batch SET batch_time = %s WHERE pipeline = 'visits' AND txid = 1", [
            now - timedelta(hours=30)
        ])  # fmt: skip
        now = timezone.now()  # a stopped clock is moved by each batch of flights
        names = [_join(conn, place, now) for place in range(COUNT - 2)]
        _fill(conn, names[-1])
        _past_batches(conn, names[-2], now)
        _history(names, now)
        _alerts(names, now)
        acknowledge([queries.pipeline(names[1])], admin)
        make_board(admin, "crowded", "Everything at once: visits, pages, countries and flights of this week", CROWDED)
        for place in range(30):
            create_api_key(f"team {place}", ["read"])
        yield [
            "/",
            "/?show=problems",
            "/alerts",
            "/alerts/rules/new?template=usual",
            "/states/",
            "/pipelines/",
            "/explore",
            f"/states/orders_{COUNT - 3}_by_shop/",
            "/states/visits_by_page/",
            "/states/visits_by_page/schema",
            "/states/visits_by_page/api",
            "/states/visits_by_page/maintenance",
            "/states/visits_by_page/explore?order=-visits",
            "/states/visits_by_hour/explore",
            "/states/visits_by_hour/explore?split=country",
            "/pipelines/visits/",
            "/pipelines/flights/dead-letters",
            f"/pipelines/{names[0]}/",
            "/boards/crowded",
            f"/pipelines/{names[-2]}/",
            f"/pipelines/{names[0]}/states",
            f"/pipelines/{names[0]}/api",
            "/lineage",
            "/maintenance",
            "/keys",
            "/keys/new",
            "/search?q=orders",
            "/api/docs/look_up_state?state=visits_by_page",
        ]


def _fill(conn: psycopg.Connection, pipeline: str) -> None:
    """Give the state of the last pipeline many rows."""
    spec = StateSpec(f"orders_{COUNT - 3}_by_shop", key={"shop": "text"}, measures={"orders": Count()})
    rows = [{"shop": f"shop {place:04}", "orders": 1 + place * place % 9_973} for place in range(SHOPS)]
    ledger = BatchLedger(conn, pipeline)
    ledger.acquire()
    batch = ledger.begin(2, spout="opaque")
    assert batch is not None
    with conn.transaction():
        lock_fence(conn, batch)
        PostgresBackingMap(conn, spec).merge([pa.RecordBatch.from_pylist(rows)], batch.txid, batch.batch_time)
    ledger.commit(batch, rows_in=SHOPS, keys_written={spec.name: SHOPS})
    driver_status.report(conn, pipeline, "running", progress={"pending": {"count": 0, "unit": "records"}})


def _past_batches(conn: psycopg.Connection, pipeline: str, now: datetime) -> None:
    """Give a pipeline an hour of batches, whose lag grows above the limit and falls again."""
    ledger = BatchLedger(conn, pipeline)
    ledger.acquire()
    for number in range(HISTORY_BATCHES):
        batch = ledger.begin(number + 2, spout="opaque")
        assert batch is not None
        ledger.commit(batch, rows_in=50_000 + 400 * (number % 9), keys_written={})
        at, lag = now - timedelta(minutes=HISTORY_BATCHES - number), max(0, 420 - 20 * abs(number - 35))
        phases = {"addBatch": 2_000 + 90 * (number % 7), "queryPlanning": 140, "latestOffset": 300, "commitBatch": 80}
        metrics = {"lag_seconds": lag, "pending": {"count": 900 * lag, "unit": "records"}, "duration_ms": phases}
        conn.execute(
            "UPDATE tidegauge.batch SET metrics = %s, started_at = %s, batch_time = %s, committed_at = %s "
            "WHERE pipeline = %s AND txid = %s",
            [json.dumps(metrics), *[at - timedelta(seconds=3)] * 2, at, pipeline, batch.txid],
        )
    driver_status.report(conn, pipeline, "running", progress={"pending": {"count": 0, "unit": "records"}})
    _rewound(conn, pipeline, now - timedelta(minutes=6))


def _rewound(conn: psycopg.Connection, pipeline: str, at: datetime) -> None:
    """Record a rewind as of then, for a mark on the charts."""
    reason = f"pipeline {pipeline!r} was rewound from batch 38 to batch 36"
    with conn.transaction():
        conn.execute(
            "INSERT INTO tidegauge.epoch (epoch, reason, identity, made_at) SELECT 'rewound', %s, identity, %s "
            "FROM tidegauge.epoch ORDER BY number DESC LIMIT 1",
            [reason, at],
        )
        conn.execute("UPDATE tidegauge.epoch SET made_by = xmin::text::bigint WHERE epoch = 'rewound'")


def _rejected(flights: Flights) -> None:
    line = '{"time_hour": "2013-01-01T10:00:00Z", "origin": "EWR", "carrier": null, "tailnum": "N14228"}'
    letters = [DeadLetter("day.json", line, "carrier is missing", record={"line": line}) for _ in range(25)]
    flights.commit({("LGA", "C01"): 30}, letters=letters)
