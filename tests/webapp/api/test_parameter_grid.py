"""Every combination of parameters, on states of every kind: never a 500, and each answer is that of a plain model.

A fuzzer's half minute does not reach combinations of four parameters; here all of them are sent, in a fixed order.
"""

import csv
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa
import pytest
from django.test import Client

from tests.webapp.redis_views import redis_views
from tidegauge.state_backends import BatchLedger, Catalog, Changelog, Count, Max, Mean, PostgresBackingMap, StateSpec
from tidegauge.state_backends.ledger.batch import lock_fence
from tidegauge.webapp.accounts import authentication
from tidegauge.webapp.accounts.services import create_api_key
from tidegauge.webapp.catalog import readers

pytestmark = pytest.mark.long

MEASURES = {"views": Count(), "mean_ms": Mean("ms"), "longest": Max("ms")}
AT = [datetime(2013, 1, 1, hour, tzinfo=UTC) for hour in range(3)]
TEXTS = [("a",), ("ab",), ("b/c",), ("",)]
PAIRS = [("a", 1), ("a", 2), ("ab", -1), ("b", 10)]

# Kind to what a state declares, and to its keys, of which the first batch writes all.
KINDS: dict[str, tuple[dict[str, Any], list[tuple[Any, ...]]]] = {
    "one column": ({"key": {"page": "text"}}, TEXTS),
    "one column, changelog": ({"key": {"page": "text"}, "changelog": True}, TEXTS),
    "two columns": ({"key": {"site": "text", "number": "bigint"}}, PAIRS),
    "two columns, changelog": ({"key": {"site": "text", "number": "bigint"}, "changelog": True}, PAIRS),
    "partitioned, changelog": (
        {"key": {"at": "timestamptz", "site": "text"}, "partitions": 2, "changelog": True},
        [(AT[0], "a"), (AT[0], "b"), (AT[1], "a"), (AT[2], "c")],
    ),
    "no column": ({"key": {}}, [()]),
    "no column, changelog": ({"key": {}, "changelog": True}, [()]),
    "transactional, changelog": ({"key": {"page": "text"}, "kind": "transactional", "changelog": True}, TEXTS),
    "Redis": ({"key": {"page": "text"}, "backend": "redis"}, TEXTS),
    "Redis, changelog": (
        {"key": {"site": "text", "number": "bigint"}, "backend": "redis", "changelog": True},
        PAIRS,
    ),
}

CELLS = {"views": int, "mean_ms": float, "longest": float, "number": int}
CELLS |= {"at": lambda text: datetime.fromisoformat(text).isoformat()}

COMMITTED = 3
AT_TXID = [None, "committed", 0, 1, 2, 3, 2**63 - 1]
REFUSED = {400, 404, 409, 410}


@dataclass
class Model:
    """versions: by batch, key to value. Values are named as in an answer."""

    name: str
    spec: StateSpec
    versions: list[dict[tuple[Any, ...], dict[str, Any]]]

    @property
    def first(self) -> list[Any]:
        """The first part of the first key, as JSON has it."""
        return as_json(min(self.versions[COMMITTED]))[:1]

    def entries(self, at_txid: Any, asked: dict[str, Any], confined: bool) -> list[tuple[list[Any], dict[str, Any]]]:
        version = self.versions[at_txid if isinstance(at_txid, int) else COMMITTED]
        found = sorted(version.items())
        if confined:
            found = [row for row in found if as_json(row[0])[:1] == self.first]
        for name, keeps in (("prefix", equal), ("from", at_least), ("to", less)):
            if name in asked:
                found = [row for row in found if keeps(as_json(row[0]), json.loads(asked[name]))]
        if "search" in asked:
            found = [row for row in found if any(str(part).lower().startswith("a") for part in as_json(row[0]))]
        if "order_by" in asked:
            found.sort(key=lambda row: -row[1]["views"])
        measures = asked.get("measures", "views,mean_ms,longest").split(",")
        rows = [(as_json(key), {name: value[name] for name in measures}) for key, value in found]
        return rows[: int(asked.get("limit", 50))]


def as_json(key: tuple[Any, ...]) -> list[Any]:
    return [part.isoformat() if isinstance(part, datetime) else part for part in key]


def equal(key: list[Any], bound: list[Any]) -> bool:
    return key[: len(bound)] == bound


def at_least(key: list[Any], bound: list[Any]) -> bool:
    return key[: len(bound)] >= bound


def less(key: list[Any], bound: list[Any]) -> bool:
    # An empty one sets no bound.
    return not bound or key[: len(bound)] < bound


def batches(keys: list[tuple[Any, ...]]) -> list[dict[tuple[Any, ...], int]]:
    return [{key: 10 + place for place, key in enumerate(keys)}, {keys[0]: 5}, {keys[-1]: 7}]


def versions(keys: list[tuple[Any, ...]]) -> list[dict[tuple[Any, ...], dict[str, Any]]]:
    made: list[dict[tuple[Any, ...], dict[str, Any]]] = [{}]
    for batch in batches(keys):
        state = dict(made[-1])
        for key, count in batch.items():
            old = state.get(key, {"views": 0, "longest": 0.0})
            state[key] = {
                "views": old["views"] + count,
                "mean_ms": 2.5,
                "longest": max(old["longest"], float(count)),
            }
        made.append(state)
    return made


@contextmanager
def in_postgres(conn: Any, declared: dict[str, Any], keys: list[tuple[Any, ...]]) -> Iterator[tuple[str, StateSpec]]:
    spec = StateSpec("grid", measures=MEASURES, **declared)
    catalog, ledger = Catalog(conn), BatchLedger(conn, "grid")
    catalog.register_pipeline("grid", spout="transactional", description="")
    ledger.acquire()
    catalog.register_states("grid", [spec], {"grid": "exactly once"})
    ledger.bind("checkpoint")
    try:
        for number, counts in enumerate(batches(keys)):
            batch = ledger.begin(number, spout="transactional")
            assert batch is not None
            rows = [dict(zip(spec.key, key, strict=True)) | partial(count) for key, count in counts.items()]
            with conn.transaction():
                lock_fence(conn, batch)
                PostgresBackingMap(conn, spec).merge([pa.RecordBatch.from_pylist(rows)], batch.txid, batch.batch_time)
                if spec.changelog:
                    Changelog(conn, spec).append(batch.txid)
            ledger.commit(batch, rows_in=1, keys_written={"grid": len(rows)})
        yield "grid", spec
    finally:
        conn.execute("SELECT pg_advisory_unlock_all()")


def partial(count: int) -> dict[str, Any]:
    return {"views": count, "mean_ms_sum": 2.5 * count, "mean_ms_count": count, "longest": float(count)}


@contextmanager
def in_redis(conn: Any, declared: dict[str, Any], keys: list[tuple[Any, ...]]) -> Iterator[tuple[str, StateSpec]]:
    with redis_views(conn, **declared) as views:
        for counts in batches(keys):
            views.commit(counts)
        yield views.name, views.spec


@pytest.fixture(params=KINDS)
def model(request, transactional_db) -> Iterator[Model]:
    declared, keys = KINDS[request.param]
    readers.clear_cache()
    fill = in_redis if declared.get("backend") == "redis" else in_postgres
    with readers.own_connection() as conn, fill(conn, declared, keys) as (name, spec):
        yield Model(name, spec, versions(keys))
    readers.clear_cache()


@pytest.fixture
def clients(model, settings) -> dict[bool, Client]:
    """By whether the API key is confined to the first part of the first key."""
    authentication.clear_cache()
    settings.TIDEGAUGE_API_RATE_PER_MINUTE = 0
    prefix = model.first or ["x"]
    tokens = {False: create_api_key("free", ["read"])[1], True: create_api_key("own", ["read"], key_prefix=prefix)[1]}
    made = {confined: Client(headers={"X-Api-Key": token}) for confined, token in tokens.items()}
    for client in made.values():
        client.raise_request_exception = False
    return made


@pytest.fixture
def one_session(model, monkeypatch) -> Iterator[None]:
    """Exports share a session of the database, because opening one for each takes most of their time."""
    with readers.own_connection() as conn:
        monkeypatch.setattr(readers, "own_connection", lambda work: nullcontext(conn))
        yield


def bounds(model: Model) -> list[dict[str, str]]:
    keys = sorted(model.versions[COMMITTED])
    low, high = as_json(keys[0]), as_json(keys[-1])
    below = {"from": json.dumps(low), "to": json.dumps(high[:1])}
    return [{}, {"prefix": json.dumps(low[:1])}, {"from": json.dumps(high)}, below, below | {"prefix": "[]"}]


def refusal(model: Model, response: Any, at_txid: Any, confined: bool) -> str:
    """Return what is wrong with an answer that is not a 200; empty if it is the right refusal."""
    problem = response.json()
    if response.status_code not in REFUSED or problem["status"] != response.status_code:
        return f"{response.status_code} {problem}"
    if problem["code"] == "unknown_state":
        return "" if confined and not model.spec.key else f"404 {problem}"
    if response.status_code == 409:
        return "" if isinstance(at_txid, int) and at_txid > COMMITTED else f"409 {problem}"
    if response.status_code == 410:
        reach = 1 if model.spec.changelog else COMMITTED
        right = isinstance(at_txid, int) and at_txid < min(reach, problem["oldest_txid"])
        return "" if right else f"410 {problem}"
    return f"{response.status_code} {problem}"


def must_refuse(model: Model, at_txid: Any, confined: bool) -> bool:
    return (isinstance(at_txid, int) and at_txid > COMMITTED) or (confined and not model.spec.key)


def test_entries(model, clients):
    wrong = []
    searches, orders = ({}, {"search": "A"}), ({}, {"order_by": "-views"})
    limits = ({}, {"limit": "2", "measures": "views"})
    for search, order, limit, bound, at_txid, confined in product(
        searches, orders, limits, bounds(model), AT_TXID, (False, True)
    ):
        asked = bound | search | order | limit
        path = f"/api/v1/states/{model.name}/entries?{urlencode(asked | given(at_txid))}"
        response = clients[confined].get(path)
        if response.status_code != 200:
            fault = refusal(model, response, at_txid, confined)
        else:
            entries = [(entry["key"], entry["value"]) for entry in response.json()["entries"]]
            expected = model.entries(at_txid, asked, confined)
            is_right = entries == expected and not must_refuse(model, at_txid, confined)
            fault = "" if is_right else f"{entries} instead of {expected}"
        if fault:
            wrong.append((path, confined, fault))

    assert wrong == []


def given(at_txid: Any) -> dict[str, str]:
    return {} if at_txid is None else {"at_txid": str(at_txid)}


def test_exports(model, clients, one_session):
    wrong = []
    files = (("csv", {}), ("csv", {"limit": "2"}), ("ndjson", {"measures": "views"}), ("arrow", {}))
    for bound, at_txid, confined, (file_format, further) in product(bounds(model), AT_TXID, (False, True), files):
        asked = {"limit": "1000000"} | bound | further
        path = f"/api/v1/states/{model.name}/export?format={file_format}&{urlencode(asked | given(at_txid))}"
        response = clients[confined].get(path)
        if response.status_code != 200:
            fault = refusal(model, response, at_txid, confined)
        else:
            rows = exported(model.spec, file_format, response.getvalue())
            response.close()
            expected = [
                dict(zip(model.spec.key, key, strict=True)) | value
                for key, value in model.entries(at_txid, asked, confined)
            ]
            is_right = rows == expected and not must_refuse(model, at_txid, confined)
            fault = "" if is_right else f"{rows} instead of {expected}"
        if fault:
            wrong.append((path, confined, fault))

    assert wrong == []


def exported(spec: StateSpec, file_format: str, content: bytes) -> list[dict[str, Any]]:
    """Return the rows of a file, with the parts of keys as JSON has them."""
    if file_format == "csv":
        rows = csv.DictReader(io.StringIO(content.decode()))
        return [{column: CELLS.get(column, str)(cell) for column, cell in row.items()} for row in rows]
    if file_format == "ndjson":
        return [json.loads(line) for line in content.splitlines()]
    with pa.ipc.open_stream(content) as stream:
        rows = stream.read_all().to_pylist()
    return [dict(zip(row, as_json(tuple(row.values())), strict=True)) for row in rows]


def test_lookups_of_many_keys_and_of_one(model, clients):
    """min_txid: 9 is not committed in time, which is a 409 of its own."""
    wrong = []
    for at_txid, min_txid, confined, measures in product(AT_TXID, (None, 2, 9), (False, True), (None, ["views"])):
        if at_txid == "committed":
            continue
        key, expected = expectation(model, at_txid, measures)
        when = given(at_txid) | ({"min_txid": str(min_txid), "wait_ms": "0"} if min_txid else {})
        names = {"measures": ",".join(measures)} if measures else {}
        body = {"keys": [key], "measures": measures} | {name: int(number) for name, number in when.items()}
        path = f"/api/v1/states/{model.name}"
        many = clients[confined].post(f"{path}/lookup", json.dumps(body), content_type="application/json")
        one = clients[confined].get(f"{path}/keys?{urlencode({'key': json.dumps(key)} | when | names)}")
        combined = clients[confined].post(
            f"{path}/lookup", json.dumps(body | {"combine": True}), content_type="application/json"
        )
        for response in (many, one, combined):
            fault = lookup_fault(model, response, at_txid, min_txid, confined, expected)
            if fault:
                wrong.append((body, response.request["PATH_INFO"], confined, fault))

    assert wrong == []


def expectation(model: Model, at_txid: Any, measures: list[str] | None) -> tuple[list[Any], dict[str, Any] | None]:
    key = min(model.versions[COMMITTED])
    version = model.versions[at_txid if isinstance(at_txid, int) and at_txid <= COMMITTED else COMMITTED]
    value = version.get(key)
    return as_json(key), value and {name: value[name] for name in measures or value}


def lookup_fault(
    model: Model, response: Any, at_txid: Any, min_txid: int | None, confined: bool, expected: dict[str, Any] | None
) -> str:
    if response.status_code == 409 and response.json()["code"] == "not_reached":
        is_right = min_txid == 9 and not (confined and not model.spec.key)
        return "" if is_right else f"409 {response.json()}"
    if response.status_code == 404 and response.json()["code"] != "unknown_state":
        return "" if expected is None and response.json()["code"] == "key_not_found" else f"404 {response.json()}"
    if response.status_code != 200:
        return refusal(model, response, at_txid, confined)
    answer = response.json()
    if "combined" in answer:
        found = answer["combined"]["value"] if answer["combined"]["keys"] else None
    else:
        found = answer["results"][0]["value"] if "results" in answer else answer["value"]
    is_right = found == expected and min_txid != 9 and not must_refuse(model, at_txid, confined)
    return "" if is_right else f"{found} instead of {expected}"


def test_histories(model, clients):
    wrong = []
    for limit, confined in product((None, 1, 2), (False, True)):
        key = min(model.versions[COMMITTED])
        asked = {"key": json.dumps(as_json(key))} | ({} if limit is None else {"limit": str(limit)})
        path = f"/api/v1/states/{model.name}/history?{urlencode(asked)}"
        fault = history_fault(model, clients[confined], path, key, confined)
        if fault:
            wrong.append((path, confined, fault))

    assert wrong == []


def history_fault(model: Model, client: Any, path: str, key: Any, confined: bool) -> str:
    shown: list[int] = []
    document = {"next": "", "complete": True}
    while document["next"] is not None:
        response = client.get(f"{path}&cursor={document['next']}" if document["next"] else path)
        if response.status_code != 200:
            return refusal(model, response, None, confined)
        document = response.json()
        shown += [version["value"]["views"] for version in document["versions"]]
    expected = sorted({version[key]["views"] for version in model.versions[1 : COMMITTED + 1]}, reverse=True)
    is_right = shown == expected or (not document["complete"] and shown == expected[: len(shown)])
    return "" if is_right else f"{shown}"
