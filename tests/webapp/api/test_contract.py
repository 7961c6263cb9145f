"""The API does what its OpenAPI documents say: a fuzzer that reads them finds no difference over HTTP.

`make fuzz` sends random requests for ten minutes; FUZZ_SECONDS and FUZZ_SEED set how long, and which.
"""

import os
from collections.abc import Collection, Mapping
from datetime import timedelta
from http import HTTPStatus
from types import MappingProxyType
from typing import Any

import pytest
import schemathesis
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import Status, events, from_schema

from tests.webapp.api.saved_queries.published import SHARE, TOP, published
from tests.webapp.api.states import add_state
from tidegauge.state_backends import Count, StateSpec
from tidegauge.state_backends.dead_letters.letters import DeadLetter
from tidegauge.webapp.accounts.issuing import issue
from tidegauge.webapp.accounts.services import create_api_key
from tidegauge.webapp.catalog.models import MaintenanceRun
from tidegauge.webapp.celery import app
from tidegauge.webapp.maintenance.services import run_maintenance

pytestmark = pytest.mark.long

# By default each call is sent in every planned way and in ten random ones; for so long then in further random ones.
SECONDS = int(os.environ.get("FUZZ_SECONDS", "0"))
SEED = int(os.environ.get("FUZZ_SEED", "1"))

# A key of each state, as the parameter of an address that names one. Both states with keys have a column `origin`.
STATES = {"flights_by_carrier": '["JFK", "AA"]', "flights_by_hour": '["2013-01-01T05:00:00Z"]', "totals": "[]"}
# A state with tiles, for the call that only such states have.
TILED = StateSpec(
    "views_by_minute",
    key={"page": "text", "start": "timestamptz"},
    measures={"views": Count()},
    tiles={"minute": timedelta(hours=2), "hour": timedelta(days=3)},
)
WINDOWS = "POST /api/v1/states/{name}/windows"
# Has no parameters: those of a saved query are in its own document, not in the one of all calls.
ALL = {"reads": [{"state": "totals", "keys": [[]]}]}

CHECKS = {
    # Valid keys, cursors and measures depend on the state: a request that is valid by the schema may get a 400.
    "positive_data_acceptance": {"enabled": False},
}


@pytest.fixture
def address(lasting, live_server, settings) -> str:
    settings.TIDEGAUGE_WRONG_KEY_RATE_PER_MINUTE = settings.TIDEGAUGE_ANONYMOUS_RATE_PER_MINUTE = 0
    settings.TIDEGAUGE_MAX_WAIT_MS = 10
    return live_server.url


@pytest.fixture
def queries(lasting) -> list[str]:
    return [published(name, definition).name for name, definition in (("top", TOP), ("share", SHARE), ("all", ALL))]


@pytest.fixture
def run_id(lasting, monkeypatch) -> int:
    """The id of a queued run. Other runs are carried out at once, since a state has one unfinished run at a time."""
    monkeypatch.setattr(app, "send_task", lambda task, args: run_maintenance(*args))
    return MaintenanceRun.objects.create(kind="expiry", state_id="totals", requested_by="x").pk


@pytest.fixture
def letters(lasting) -> None:
    """A dead letter that can be replayed."""
    lasting.commit({("JFK", "AA"): 5}, [DeadLetter("/in/a.jsonl", "{}", "n: expected int", 1, record={"n": "x"})])


@pytest.fixture
def tiled(lasting) -> None:
    add_state(lasting.conn, TILED, {})


def config(token: str, seconds: int, planned: bool, names: Mapping[str, object], only: str) -> SchemathesisConfig:
    """names: values of parameters by what the paths that have them begin with. only: a regular expression of paths."""
    settings: dict[str, Any] = {"max-time": seconds} if seconds else {}
    return SchemathesisConfig.from_dict(
        settings
        | {
            "seed": SEED,
            # A kept-alive connection would hold a thread of the server and its database session.
            "headers": {"Authorization": f"Bearer {token}", "Connection": "close"},
            "generation": {"max-examples": 10, "database": "none"},
            "checks": CHECKS,
            # Calls can hardly use what others created: maintenance runs end within moments.
            "phases": {"stateful": {"enabled": False}, "coverage": {"enabled": planned}},
            "operations": [
                # Another process serves the streams: here they are a 421.
                {"include-path-regex": "^/events/", "enabled": False},
                {"include-path-regex": f"^(?!{only})", "enabled": False},
                *({"include-path-regex": f"^{path}", "parameters": given} for path, given in names.items()),
            ],
        }
    )


def failures(event: events.EngineEvent) -> list[str]:
    if isinstance(event, events.NonFatalError | events.FatalError):
        return [str(event)]
    if not isinstance(event, events.ScenarioFinished):
        return []
    # A list may be too long for an address, which the server refuses before any code of ours; so no document says it.
    answered = {
        case for case, asked in event.recorder.interactions.items()
        if asked.response is None or asked.response.status_code != HTTPStatus.REQUEST_URI_TOO_LONG
    }  # fmt: skip
    checks = [
        check
        for case, checks in event.recorder.checks.items()
        if case in answered
        for check in checks
        if check.status == Status.FAILURE
    ]
    return [
        f"{event.recorder.label}: {check.failure_info.failure.title}: {check.failure_info.failure.message}\n"
        f"{check.failure_info.code_sample}"
        for check in checks
        if check.failure_info
    ]


def fuzz(
    document: str,
    token: str,
    statuses: Collection[int],
    seconds: int = SECONDS,
    *,
    planned: bool = True,
    names: Mapping[str, object] = MappingProxyType({}),
    only: str = "",
) -> set[str]:
    """Send requests to every call of a document; there must be answers with each of the statuses, at least.

    planned: also what is planned from the document, before the random ones. names, only: as `config` takes them.
    Returns the calls that no request got an answer 2xx from.
    """
    schema = schemathesis.openapi.from_url(
        document,
        config=config(token, seconds, planned, names, only),
        headers={"Authorization": f"Bearer {token}"},
        timeout=60,  # in seconds; the server makes the document at the first request
    )
    seen: set[int] = set()
    reached: set[str] = set()
    found: list[str] = []
    fuzzed: set[str] = set()

    for event in from_schema(schema).execute():
        found += failures(event)
        if isinstance(event, events.ScenarioFinished):
            asked = event.recorder.interactions.values()
            answered = [(each.request.method, each.response.status_code) for each in asked if each.response]
            seen |= {status for _, status in answered}
            # Requests with other methods are planned as well, and OPTIONS is a 204 everywhere.
            own, _, _ = event.recorder.label.partition(" ")
            if any(method == own and 200 <= status < 300 for method, status in answered):
                reached.add(event.recorder.label)
            if event.phase.name == "FUZZING" and asked:
                fuzzed.add(event.recorder.label)

    assert found == []
    assert fuzzed == {operation.ok().label for operation in schema.get_all_operations()}
    assert set(statuses) <= seen
    return fuzzed - reached


def test_a_fuzzer_finds_nothing_and_gets_an_answer_2xx_from_every_call(address, queries, run_id, letters, tiled):
    _, token = create_api_key("fuzzer", ["read", "maintain", "issue_tokens", "dead_letters"])
    document = f"{address}/api/schema?format=json"
    others = {
        "/api/v1/pipelines/": {"path.name": "flights"},
        "/api/v1/saved-queries/": {"path.name": "all", "path.version": 1},
        "/api/v1/maintenance/": {"path.run_id": run_id},
    }

    first, *rest = STATES
    refused = fuzz(document, token, {200, 201, 202, 400, 401, 404}, names=others | of_state(first))
    # What is planned from the document is much the same for each state, and takes long.
    for state in rest:
        fuzz(
            document,
            token,
            {200, 400},
            SECONDS // 6,
            planned=bool(SECONDS),
            names=of_state(state),
            only="/api/v1/states/",
        )
    only = "/api/v1/states/[^/]+/windows"
    of_tiles = fuzz(document, token, {200, 400}, SECONDS // 6, names={only: {"path.name": TILED.name}}, only=only)
    assert (refused - {WINDOWS}, of_tiles) == (set(), set())


def of_state(name: str) -> dict[str, object]:
    key = STATES[name]
    return {"/api/v1/states/": {"path.name": name, "query.key": key} | ({"query.by": "origin"} if key != "[]" else {})}


def test_a_fuzzer_with_a_token_finds_nothing(address, queries):
    key, _ = create_api_key("fuzzer", ["read", "issue_tokens"])
    token = issue(key, states=list(STATES), lifetime_seconds=86_400).text

    fuzz(f"{address}/api/schema?format=json", token, {200, 400, 403, 404}, SECONDS // 3, planned=False)


@pytest.mark.parametrize("name", ["top", "share"])
def test_a_fuzzer_finds_nothing_in_saved_queries(address, queries, name):
    _, token = create_api_key("fuzzer", ["read"])

    assert fuzz(f"{address}/api/v1/saved-queries/{name}/openapi", token, {200, 400, 401}, SECONDS // 10) == set()
