"""A restricted API key: no stream, and no refusal of one, has a name, key or message of what is outside."""

from contextlib import suppress

import pytest

from tests.webapp.outside import NAMES, SCOPES, Answer, two_pipelines
from tidegauge.webapp.accounts.services import create_api_key
from tidegauge.webapp.events.auth import COMMITS_PATH, STATES_PATH
from tidegauge.webapp.serving.health import ON_EVENTS

KEYS = ["", '?keys=[["near","a"]]', '?keys=[["farshop","b"]]', '?prefix=["farshop"]']


@pytest.fixture
def world(transactional_db):
    with two_pipelines() as conn:
        yield conn


def paths() -> list[str]:
    states = [f"{STATES_PATH}{name}{query}" for name in [*NAMES, "gone"] for query in KEYS]
    return [*ON_EVENTS, COMMITS_PATH, "/events/covert", *states]


@pytest.mark.parametrize(("scope", "words"), SCOPES)
def test_no_stream_has_what_is_outside(world, listen, scope, words):
    secret = create_api_key("restricted", ["read"], **scope)[1]

    # As from elsewhere: clients on the same host may read the metrics.
    listeners = {path: listen(path, key=secret, headers={"X-Forwarded-For": "203.0.113.7"}) for path in paths()}
    answers = [Answer(path, listener.status, received(listener)) for path, listener in listeners.items()]

    assert {answer.path: answer.text for answer in answers if answer.leaks(words)} == {}
    opened = [answer.path for answer in answers if answer.status == 200]
    assert {COMMITS_PATH, f"{STATES_PATH}seen_orders"} <= set(opened)


def received(listener) -> str:
    """Return the headers, and the body or the first event."""
    if listener.headers.get("content-type", "").startswith("text/event-stream"):
        with suppress(TimeoutError):  # of a state that is not served
            return f"{listener.headers} {listener.next(1.0)}"
    return f"{listener.headers} {listener.rest(1.0).decode()}"
