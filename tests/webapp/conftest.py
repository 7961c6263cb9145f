"""Sets Django up for the web tests; tests/conftest.py has set the addresses of the servers."""

from time import monotonic

import django
import pytest
from django.conf import settings

from tests.webapp.flights_database import filled_database, flights_database

__all__ = ["filled_database", "flights_database"]

django.setup()
# A secure password hash takes half a second, in every test with a sign-in.
settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
# Files are looked for when they are asked for: without this each test's client reads the names of all 250 of them.
settings.WHITENOISE_AUTOREFRESH = True


@pytest.fixture(autouse=True)
def uncached(monkeypatch) -> None:
    """What pages show on top is read for each of them, not once a second.

    Limits of pipelines and the last run of the schedule count as just read; tests of them clear them.
    """
    from tidegauge.webapp.catalog import limits
    from tidegauge.webapp.console import system_snapshot
    from tidegauge.webapp.core import multiprocess
    from tidegauge.webapp.notify.alerts import history

    monkeypatch.setattr(system_snapshot.pipeline_statuses, "_seconds", 0)
    # Set by a test that starts servers, it would make metrics come from the files of its processes.
    monkeypatch.delenv(multiprocess.VARIABLE, raising=False)
    later = monotonic() + 3_600
    monkeypatch.setattr(limits.own_limits, "_latest", (later, {}))
    monkeypatch.setattr(history.last_check, "_latest", (later, None))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        fixtures = getattr(item, "fixturenames", [])
        if {"filled", "connection"} <= set(fixtures):
            # Before `db`, which begins the test's transaction on Django's connection.
            fixtures.insert(0, "filled_database")
