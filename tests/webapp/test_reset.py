"""What tests/harness/reset.py restores after each test that commits."""

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django_celery_beat.models import PeriodicTask

from tests.harness.reset import Baseline
from tests.webapp.committed_flights import committed_flights
from tidegauge.webapp.catalog.models import Pipeline


@pytest.fixture
def baseline(transactional_db) -> Baseline:
    """What is in the database before the test."""
    connection.ensure_connection()
    connection.connection.execute("DROP SCHEMA IF EXISTS baseline_of_test CASCADE")
    return Baseline(connection.connection, "baseline_of_test")


def test_rows_that_a_test_adds_are_deleted(baseline):
    User.objects.create_user("ada")
    with committed_flights():
        pass

    baseline.restore(connection.connection)

    assert not User.objects.exists()
    assert not Pipeline.objects.exists()
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_class WHERE relnamespace = 'tidegauge_state'::regnamespace")
        assert cursor.fetchone() == (0,)


def test_rows_of_migrations_that_a_test_changes_or_deletes_come_back(baseline):
    permissions = Permission.objects.count()
    tasks = dict(PeriodicTask.objects.values_list("name", "enabled"))
    PeriodicTask.objects.update(enabled=False)
    Permission.objects.filter(codename__startswith="view").delete()

    baseline.restore(connection.connection)

    assert dict(PeriodicTask.objects.values_list("name", "enabled")) == tasks
    assert any(tasks.values())
    assert Permission.objects.count() == permissions > 0
