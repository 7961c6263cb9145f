"""The web process, the events process and the Chromium that all tests share which need no settings of their own.

Their data comes and goes, so the servers cache nothing. They have the SECRET_KEY of the tests, so that sessions and
tokens made in a test are valid for them. They stop before the test's database is dropped, which their connections would
prevent. A plugin, because a fixture of the session that is imported into several conftest.py would be several fixtures.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.webapp.chromium import Chromium
    from tests.webapp.web_server import Server

# Low enough for a test to reach it.
MAX_KEYS = 25

HEARTBEAT_SECONDS = 0.5

# Pages of the one may open event streams with the session of their user, pages of the other with a token.
SESSION_ORIGIN, TOKEN_ORIGIN = "https://tidegauge.example", "https://pages.example"

EVENTS = pytest.StashKey["Server"]()


@pytest.fixture(scope="session")
def web_process(django_db_setup: None, django_db_blocker: Any, tmp_path_factory: Any) -> Iterator[Server]:
    """A web process. A test that stops it starts it again."""
    from django.conf import settings

    from tests.webapp.web_server import Server, running
    from tidegauge.webapp.serving import process_commands

    own = {
        "SECRET_KEY": settings.SECRET_KEY, "TIDEGAUGE_LOOKUP_MAX_KEYS": MAX_KEYS, "TIDEGAUGE_API_KEY_CACHE_SECONDS": 0,
        "LOG_FORMAT": "json",
    }  # fmt: skip
    options = [*process_commands.WEB[:-1], "tests.webapp.uncached_web:application"]
    server = Server("web", options, tmp_path_factory.mktemp("web"), own)
    with django_db_blocker.unblock(), running(server):
        yield server


@pytest.fixture(scope="session")
def _without_events(django_db_setup: None, pytestconfig: pytest.Config) -> Iterator[None]:
    """Stops the events process at the end of the session."""
    yield
    _stop_events(pytestconfig)


@pytest.fixture(scope="module")
def events_process(
    _without_events: None, django_db_blocker: Any, tmp_path_factory: Any, pytestconfig: pytest.Config
) -> Server:
    """An events process, which runs on while one module after the other asks for it.

    It does not run longer, because it reports itself as a member every two seconds, and other tests would see that.
    """
    from django.conf import settings

    from tests.webapp.web_server import Server
    from tidegauge.webapp.serving import process_commands

    server = pytestconfig.stash.get(EVENTS, None)
    if server is None or not server.is_running:
        own = {
            "SECRET_KEY": settings.SECRET_KEY, "TIDEGAUGE_EVENTS_HEARTBEAT_SECONDS": HEARTBEAT_SECONDS,
            "TIDEGAUGE_API_KEY_CACHE_SECONDS": 0, "TIDEGAUGE_EVENTS_ORIGINS": SESSION_ORIGIN,
            "TIDEGAUGE_CORS_ORIGINS": TOKEN_ORIGIN,
        }  # fmt: skip
        server = pytestconfig.stash[EVENTS] = Server(
            "events", process_commands.EVENTS, tmp_path_factory.mktemp("events"), own
        )
        with django_db_blocker.unblock():
            server.start()
    return server


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests with one of these processes, or with one of their module, whose fixture ends in `_process`."""
    for item in items:
        names = getattr(item, "fixturenames", ())
        if "chromium" in names or any(name.endswith("_process") for name in names):
            item.add_marker("processes")


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    if not _goes_on(item, nextitem):
        _stop_events(item.config)


def _goes_on(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """Return whether the next test may use the events process as well."""
    if nextitem is None:
        return False
    return nextitem.path == item.path or "events_process" in getattr(nextitem, "fixturenames", ())


def _stop_events(config: pytest.Config) -> None:
    server = config.stash.get(EVENTS, None)
    if server is not None:
        server.stop()


@pytest.fixture(scope="session")
def _chromium() -> Iterator[Chromium]:
    from tests.webapp.chromium import chromium_running

    with chromium_running() as running:
        yield running


@pytest.fixture
def chromium(_chromium: Chromium) -> Iterator[Browser]:
    """A browser. Its contexts are closed after the test."""
    with _chromium.in_use() as browser:
        yield browser
