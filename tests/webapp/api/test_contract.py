"""The API does what /api/schema says: a fuzzer that reads the schema finds no difference over HTTP."""

import pytest
import schemathesis
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import Status, events, from_schema

from webapp.accounts.services import create_api_key

# Each call has been sent in every planned way after about 10 s; the rest of the time is for random requests.
MOST_SECONDS = 30

STATES = ["flights_by_carrier", "flights_by_hour", "totals"]

CHECKS = {
    # Valid keys, cursors and measures depend on the state: a request that is valid by the schema may get a 400.
    "positive_data_acceptance": {"enabled": False},
    # A batch that is not committed in time is a 503, as documented.
    "not_a_server_error": {"expected-statuses": ["2xx", "3xx", "4xx", "503"]},
}


@pytest.fixture
def address(lasting, live_server, settings) -> str:
    settings.TIDEMARK_WRONG_KEY_RATE_PER_MINUTE = settings.TIDEMARK_ANONYMOUS_RATE_PER_MINUTE = 0
    settings.TIDEMARK_MAX_WAIT_MS = 10
    return live_server.url


def config(token: str) -> SchemathesisConfig:
    return SchemathesisConfig.from_dict(
        {
            "seed": 1,
            "max-time": MOST_SECONDS,
            # A kept-alive connection would hold a thread of the server and its database session.
            "headers": {"Authorization": f"Bearer {token}", "Connection": "close"},
            "generation": {"max-examples": 10, "database": "none"},
            "checks": CHECKS,
            # Calls can hardly use what others created: maintenance runs end within moments.
            "phases": {"stateful": {"enabled": False}},
            "operations": [
                {"include-path-regex": "^/api/v1/states/", "parameters": {"path.name": STATES}},
                # Another process serves the streams: here they are a 421.
                {"include-path-regex": "^/events/", "enabled": False},
                {"include-path-regex": "^/api/v1/pipelines/", "parameters": {"path.name": "flights"}},
            ],
        }
    )


def failures(event: events.EngineEvent) -> list[str]:
    if isinstance(event, events.NonFatalError | events.FatalError):
        return [str(event)]
    if not isinstance(event, events.ScenarioFinished):
        return []
    checks = [check for checks in event.recorder.checks.values() for check in checks if check.status == Status.FAILURE]
    return [
        f"{event.recorder.label}: {check.failure_info.failure.title}: {check.failure_info.failure.message}\n"
        f"{check.failure_info.code_sample}"
        for check in checks
        if check.failure_info
    ]


def test_a_fuzzer_finds_nothing(address):
    _, token = create_api_key("fuzzer", ["read", "maintain", "issue_tokens"])
    schema = schemathesis.openapi.from_url(f"{address}/api/schema?format=json", config=config(token))
    statuses: list[int] = []
    found: list[str] = []
    fuzzed: set[str] = set()

    for event in from_schema(schema).execute():
        found += failures(event)
        if isinstance(event, events.ScenarioFinished):
            asked = event.recorder.interactions.values()
            statuses += [interaction.response.status_code for interaction in asked if interaction.response]
            if event.phase.name == "FUZZING" and asked:
                fuzzed.add(event.recorder.label)

    assert found == []
    assert fuzzed == {operation.ok().label for operation in schema.get_all_operations()}
    assert {200, 202, 304, 400, 401, 404} <= set(statuses)
