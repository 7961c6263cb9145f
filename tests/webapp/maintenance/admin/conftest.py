from collections.abc import Callable

import pytest
from django.contrib.auth.models import Permission
from django.test import Client

from tidegauge.webapp.celery import app


@pytest.fixture
def sent(monkeypatch):
    """The messages sent to the queue. No worker gets them: it could not see the rows of a test's transaction."""
    messages = []
    monkeypatch.setattr(app, "send_task", lambda name, args: messages.append((name, args)))
    return messages


@pytest.fixture
def staff(db, django_user_model) -> Callable[..., Client]:
    """Signs in a staff user with these permissions, by their codenames."""

    def sign_in(name: str, *codenames: str) -> Client:
        user = django_user_model.objects.create_user(name, is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
        client = Client()
        client.force_login(user)
        return client

    return sign_in


@pytest.fixture
def viewer(staff) -> Client:
    """Staff with all view permissions and no others."""
    views = Permission.objects.filter(codename__startswith="view_").values_list("codename", flat=True)
    return staff("viewer", *views)
