"""The command `roles`, and every kind of process under the role that it is for, from migration to a reader's query."""

import json
import os
import secrets
import subprocess
import sys
from urllib.parse import urlsplit

import psycopg
import pytest

from tidegauge.pipelines.embedded.data_dir import REPOSITORY
from tidegauge.state_backends.schema.roles import PARTS, Roles

pytestmark = pytest.mark.processes

PASSWORDS = {f"TIDEGAUGE_{part.upper()}_PASSWORD": secrets.token_hex(16) for part in PARTS}

# What web and events processes do: sign-in, API keys, lookups, edits and requests; membership of the events process.
WEB = """
import json
from datetime import timedelta
import tidegauge.webapp.wsgi
from django.contrib.auth import get_user_model
from django.test import Client
from tidegauge.webapp.accounts.services import create_api_key
from tidegauge.webapp.serving.health import migrations
from tidegauge.webapp.catalog.membership import ProcessMembership
from tidegauge.webapp.maintenance.operations import change_state

key = create_api_key("e2e", ["read", "maintain"])[1]
people = get_user_model().objects.create_superuser("ann", password="a long pass phrase")
client, signed_in = Client(headers={"Host": "localhost", "X-Api-Key": key}), Client(headers={"Host": "localhost"})
signed_in.force_login(people)

def status(method, path, body=None, client=client):
    given = {} if body is None else {"data": json.dumps(body), "content_type": "application/json"}
    return getattr(client, method)(path, **given)

found = status("post", "/api/v1/states/words/lookup", {"keys": [["dog"]]}).json()
asked = status("post", "/api/v1/states/words/compaction")
print(json.dumps({
    "dog": found["results"][0]["value"],
    "lists": [status("get", f"/api/v1/{path}").status_code for path in ("states", "pipelines", "maintenance")],
    "requested": asked.status_code,
    "paused": status("post", "/api/v1/pipelines/word_count/pause").status_code,
    "pages": [signed_in.get(path).status_code for path in ("/", "/states/words/", "/admin/", "/admin/states/state/")],
    "ready": status("get", "/readyz").status_code,
    "metrics": status("get", "/metrics").status_code,
}))
change_state(name="words", ttl=timedelta(days=9), requested_by="ann")
member = ProcessMembership("events")
member.heartbeat()
assert member._membership is not None
member.leave()
"""

# What a Celery worker does, the schedule's tasks included.
WORKER = """
from tidegauge.webapp.celery import app
app.loader.import_default_modules()
from tidegauge.webapp.catalog.models import MaintenanceRun
from tidegauge.webapp.maintenance import services
for run in MaintenanceRun.objects.all():
    services.run_maintenance(run.id)
services.maintain_all(kind="compaction")
for run in MaintenanceRun.objects.filter(status="queued"):
    services.run_maintenance(run.id)
from django_celery_beat.schedulers import DatabaseScheduler
DatabaseScheduler(app=app).setup_schedule()
from tidegauge.webapp.accounts.audit.services import forget_old_entries
forget_old_entries()
print(sorted({(run.kind, run.status, run.error) for run in MaintenanceRun.objects.all()}))
"""


@pytest.fixture(scope="module", autouse=True)
def roles():
    """Names that no other run has; before the database, so that they are dropped after it."""
    roles = Roles(f"test_{secrets.token_hex(4)}")
    yield roles
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as admin:
        for name in roles.names:
            admin.execute(f"DROP ROLE IF EXISTS {name}")


@pytest.fixture
def run(database_url, roles, tmp_path):
    """Runs a program under a role; None is the superuser. Its output."""

    def url(part):
        address = urlsplit(database_url)
        if part is None:
            return database_url
        password = PASSWORDS[f"TIDEGAUGE_{part.upper()}_PASSWORD"]
        place = f"{roles[part]}:{password}@{address.hostname}:{address.port}"
        return address._replace(netloc=place).geturl()

    def run(part, *words, code=0, **environ):
        environ = (
            os.environ | {"DATABASE_URL": url(part), "LOG_FORMAT": "text", "TIDEGAUGE_HOME": str(tmp_path)} | environ
        )
        done = subprocess.run(
            [sys.executable, *words], cwd=REPOSITORY, env=environ, capture_output=True, text=True, timeout=240
        )
        assert done.returncode == code, done.stderr
        return done.stdout if code == 0 else done.stderr

    run.url = url
    return run


@pytest.fixture
def manage(run):
    return lambda part, *words, **options: run(part, "manage.py", *words, **options)


ONE_USER_FIRST = "an installation of one user first"


@pytest.fixture
def installed(request, database_url, manage, roles):
    """Roles and then the tables, or with the parameter ONE_USER_FIRST roles that take over what one user installed."""
    with psycopg.connect(database_url, autocommit=True) as conn:
        for (schema,) in conn.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'tidegauge%'").fetchall():
            conn.execute(f"DROP SCHEMA {schema} CASCADE")
        conn.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public; GRANT USAGE ON SCHEMA public TO PUBLIC")
    if getattr(request, "param", None) == ONE_USER_FIRST:
        manage(None, "migrate", "--noinput")
    manage(None, "roles", "--prefix", roles.prefix, **PASSWORDS)
    manage("owner", "migrate", "--noinput")
    return database_url


@pytest.mark.spark
@pytest.mark.parametrize("installed", [ONE_USER_FIRST], indirect=True)
def test_every_process_works_under_its_role(installed, manage, run, roles, tmp_path):
    (tmp_path / "input").mkdir()
    (tmp_path / "input" / "1.txt").write_text("dog cat dog\n")
    places = ["--input", str(tmp_path / "input"), "--checkpoint", str(tmp_path / "checkpoint")]

    assert manage("owner", "roles", "--check") == "the roles are as they should be\n"
    manage("pipeline", "run_pipeline", "word_count", *places, "--once")
    seen = json.loads(run("web", "-c", WEB).splitlines()[-1])
    maintained = run("worker", "-c", WORKER)

    assert seen["dog"] == {"count": 2}
    assert (seen["requested"], seen["paused"], seen["ready"]) == (202, 202, 200)
    assert {*seen["lists"], *seen["pages"], seen["metrics"]} == {200}
    assert maintained == "[('compaction', 'done', '')]\n"
    with psycopg.connect(run.url("reader")) as reader:
        assert reader.execute("SELECT word, count FROM tidegauge_live.words ORDER BY 1").fetchall() == [
            ("cat", 1), ("dog", 2),
        ]  # fmt: skip
    # Commands of operators, which change tables.
    manage("worker", "pipelines", "resume", "word_count")
    manage("worker", "rename", "words", "terms")
    with psycopg.connect(run.url("reader")) as reader:
        assert reader.execute("SELECT count(*) FROM tidegauge_live.terms").fetchone() == (2,)
    assert manage(None, "roles", "--check") == "the roles are as they should be\n"


def test_roles_are_printed_without_passwords(installed, manage, roles):
    out = manage(None, "roles", **PASSWORDS)

    assert [line.split("@")[0] for line in out.splitlines()] == [f"postgresql://{name}" for name in roles.names]
    assert not any(password in out for password in PASSWORDS.values())


def test_check_names_what_is_missing_and_the_command_that_mends_it(installed, manage, roles, database_url):
    assert manage("owner", "roles", "--check") == "the roles are as they should be\n"
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute(f"REVOKE SELECT ON tidegauge.batch FROM {roles['web']}")

    said = manage(None, "roles", "--check", code=1)

    assert "run `roles` as a superuser" in said


def test_a_short_password_is_refused(manage):
    said = manage(None, "roles", code=1, TIDEGAUGE_WEB_PASSWORD="secret1")

    assert "has fewer than 12 characters" in said
    assert "secret1" not in said


def test_a_role_without_a_privilege_is_told_which_and_what_to_type(installed, manage, roles):
    said = manage("pipeline", "migrate", "--noinput", code=1)

    assert f"role {roles['pipeline']!r} lacks a privilege (permission denied for table django_migrations)" in said
    assert "`tidegauge roles --check`" in said
