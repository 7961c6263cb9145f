from io import StringIO

from django.apps import apps
from django.core.management import call_command

from webapp.states import stores


def test_no_model_lacks_a_migration(db):
    said = StringIO()

    call_command("makemigrations", dry_run=True, stdout=said)

    assert said.getvalue() == "No changes detected\n"


def test_the_models_mirror_the_tables_of_the_library(db):
    for model in apps.get_app_config("states").get_models():
        schema, table = model._meta.db_table.replace('"', "").split(".")
        columns = stores.connection().execute(
            "SELECT column_name, is_nullable = 'YES' FROM information_schema.columns "
            "WHERE table_schema = %s AND table_name = %s",
            [schema, table],
        )
        mirrored = {field.column: field.null for field in model._meta.concrete_fields}
        assert mirrored == dict(columns.fetchall()), f"{model.__name__} differs from {schema}.{table}"


def test_the_tables_can_be_installed_again(transactional_db):
    call_command("migrate", "states", "zero", verbosity=0)
    call_command("migrate", "states", verbosity=0)

    assert stores.connection().execute("SELECT count(*) FROM tidemark.schema_version").fetchone() == (1,)
