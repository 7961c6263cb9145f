from collections.abc import Callable

import pytest
from django.contrib.auth.models import Permission
from django.test import Client

from webapp.celery import app


@pytest.fixture
def sent(monkeypatch):
    """What the workers were told; nothing reaches them, for a test's transaction is not theirs to see."""
    messages = []
    monkeypatch.setattr(app, "send_task", lambda name, args: messages.append((name, args)))
    return messages


@pytest.fixture
def staff(db, django_user_model) -> Callable[..., Client]:
    """Signs in somebody of the staff with these permissions, by their codenames."""

    def sign_in(name: str, *codenames: str) -> Client:
        user = django_user_model.objects.create_user(name, is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
        client = Client()
        client.force_login(user)
        return client

    return sign_in


@pytest.fixture
def onlooker(staff) -> Client:
    """Staff that may look at everything and touch nothing."""
    looks = Permission.objects.filter(codename__startswith="view_").values_list("codename", flat=True)
    return staff("onlooker", *looks)
