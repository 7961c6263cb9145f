"""Sets Django up for the web tests; tests/conftest.py has set the addresses of the servers."""

import os
from importlib import import_module

import django
import pytest
from django.apps import apps
from django.conf import settings

# All tests share one client address; the tests of rate limits set their own limits.
os.environ["TIDEMARK_WRONG_KEY_RATE_PER_MINUTE"] = os.environ["TIDEMARK_ANONYMOUS_RATE_PER_MINUTE"] = "0"

# A thread that stores counts would write beside the tests; those of usage store them themselves.
os.environ["TIDEMARK_USAGE_FLUSH_SECONDS"] = "0"

django.setup()
# A secure password hash takes half a second, in every test with a sign-in.
settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture(autouse=True)
def uncached(monkeypatch) -> None:
    """What pages show on top is read for each of them, not once a second."""
    from webapp.core import system_snapshot
    from webapp.states import limits

    monkeypatch.setattr(system_snapshot.pipeline_statuses, "_seconds", 0)
    limits.own_limits.clear()


@pytest.fixture
def schedule(db) -> None:
    """The tasks that migrations add, also after a test that emptied the database."""
    import_module("webapp.states.migrations.0002_schedule").add_schedule(apps, None)
    import_module("webapp.states.migrations.0007_epochs").add_audit(apps, None)
    import_module("webapp.webhooks.migrations.0002_schedule").add_schedule(apps, None)
