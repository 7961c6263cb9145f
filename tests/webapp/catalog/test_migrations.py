import itertools
from io import StringIO

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from tidegauge.state_backends.schema.install import migrations
from tidegauge.webapp.catalog import readers


def test_no_model_lacks_a_migration(db):
    said = StringIO()

    call_command("makemigrations", dry_run=True, stdout=said)

    assert said.getvalue() == "No changes detected\n"


def library_models():
    return [model for model in apps.get_app_config("states").get_models() if not model._meta.managed]


@pytest.mark.parametrize("model", library_models(), ids=lambda model: model.__name__)
def test_a_model_has_the_columns_of_its_table(db, model):
    columns = readers.connection().execute(
        "SELECT attname, format_type(atttypid, atttypmod), NOT attnotnull FROM pg_attribute "
        "WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped",
        [model._meta.db_table],
    )

    mirrored = {(field.column, field.db_type(connection), field.null) for field in model._meta.concrete_fields}

    assert mirrored == set(columns.fetchall())


@pytest.mark.parametrize("model", library_models(), ids=lambda model: model.__name__)
def test_the_key_of_a_model_is_unique_in_its_table(db, model):
    found = readers.connection().execute(
        "SELECT attname FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = indkey[0] "
        "WHERE indrelid = %s::regclass AND indisunique AND indnkeyatts = 1",
        [model._meta.db_table],
    )

    assert (model._meta.pk.column,) in found.fetchall()


def test_the_tables_can_be_installed_again(transactional_db):
    call_command("migrate", "states", "zero", verbosity=0)
    call_command("migrate", verbosity=0)

    versions = readers.connection().execute("SELECT number, name FROM tidegauge.schema_version ORDER BY number")
    assert versions.fetchall() == [(migration.number, migration.name) for migration in migrations()]


def test_keys_people_and_schedule_are_created_before_the_schema_of_states_and_do_not_go_with_it(db):
    executor = MigrationExecutor(connection)
    whole = executor.migration_plan(executor.loader.graph.leaf_nodes(), clean_start=True)
    plan = [migration for migration, _ in whole]
    before = {migration.app_label for migration in itertools.takewhile(lambda each: each.app_label != "states", plan)}

    after = {migration.app_label for migration in plan} - before
    assert after == {"states", "webhooks", "tidegauge_alerts", "tidegauge_saved_views", "tidegauge_boards"}
