from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from tests.webapp.fixtures import connection, filled, flights, lasting, reader
from tidegauge.webapp.accounts.models import Restriction
from tidegauge.webapp.console.saved_views.models import SavedView

__all__ = ["connection", "filled", "flights", "lasting", "reader"]


@pytest.fixture
def person(django_user_model) -> Callable[..., Client]:
    """Makes the client of another user without permissions. scope: what the user is restricted to."""

    def made(name: str, **scope: Any) -> Client:
        user = django_user_model.objects.create_user(name)
        if scope:
            Restriction.objects.create(user=user, **scope)
        client = Client()
        client.force_login(user)
        return client

    return made


@pytest.fixture
def saved(reader) -> Callable[..., SavedView]:
    """Saves the question of a page as the reader does, and returns the view."""

    def made(page: str, name: str = "Busiest", **form: Any) -> SavedView:
        path, _, query = page.partition("?")
        answer = reader.post(f"{path}/save?{query}", {"name": name, **form})
        assert answer.status_code == 302, answer.content.decode()
        return SavedView.objects.get(name=name)

    return made
