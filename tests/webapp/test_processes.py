"""Settings and loaded modules of web and worker processes."""

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.processes

GIVEN = "given-0123456789-abcdefghijklmnop"

REPORT = """
import json, sys
import tidegauge.webapp.wsgi
from django.conf import settings
from django.test import Client
Client(raise_request_exception=False, headers={"Host": "localhost"}).get("/admin/login/")
names = ["DEBUG", "ALLOWED_HOSTS", "TIME_ZONE", "SESSION_COOKIE_SECURE", "SECURE_HSTS_SECONDS", "SECRET_KEY"]
print(json.dumps({name: getattr(settings, name) for name in names} | {"modules": list(sys.modules)}))
"""

WORKER = """
import json, sys
from tidegauge.webapp.celery import app
app.loader.import_default_modules()
print(json.dumps({"modules": list(sys.modules), "tasks": list(app.tasks)}))
"""


def report(script, tmp_path, **environ):
    inherited = {name: value for name, value in os.environ.items() if name in ("PATH", "DATABASE_URL", "REDIS_URL")}
    environ = {**inherited, "TIDEGAUGE_HOME": str(tmp_path), **environ}
    done = subprocess.run([sys.executable, "-c", script], env=environ, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("script", [REPORT, WORKER])
def test_no_web_or_worker_process_loads_spark_or_the_pipelines(script, tmp_path):
    modules = report(script, tmp_path)["modules"]

    assert not [
        name for name in modules if name.removeprefix("tidegauge.").split(".")[0] in ("pyspark", "py4j", "pipelines")
    ]


def test_a_worker_knows_its_tasks(tmp_path):
    assert {"states.run_maintenance", "states.maintain_all"} <= set(report(WORKER, tmp_path)["tasks"])


def test_the_default_settings_are_safe(tmp_path):
    settings = report(REPORT, tmp_path)

    assert settings["DEBUG"] is False
    assert settings["ALLOWED_HOSTS"] == ["localhost", "127.0.0.1", "[::1]"]
    assert settings["TIME_ZONE"] == "UTC"
    assert settings["SECRET_KEY"] == (tmp_path / "secret_key").read_text()


def test_the_environment_overrides_the_defaults(tmp_path):
    settings = report(
        REPORT, tmp_path, DEBUG="1", ALLOWED_HOSTS="a.example,b.example", SECRET_KEY=GIVEN, TIDEGAUGE_HTTPS="1"
    )

    assert (settings["DEBUG"], settings["SECRET_KEY"]) == (True, GIVEN)
    assert settings["ALLOWED_HOSTS"] == ["a.example", "b.example"]
    assert settings["SESSION_COOKIE_SECURE"]
    assert settings["SECURE_HSTS_SECONDS"] > 0
    assert not (tmp_path / "secret_key").exists()


def test_connections_of_the_web_process_have_a_statement_timeout_and_those_of_commands_have_none(tmp_path):
    script = """
import json, os
os.environ["DJANGO_SETTINGS_MODULE"] = "tidegauge.webapp.settings"
{start}
from django.db import connection
with connection.cursor() as cursor:
    cursor.execute("SHOW statement_timeout")
    print(json.dumps(cursor.fetchone()))
"""
    web, command = (
        script.format(start=start) for start in ("import tidegauge.webapp.wsgi", "import django; django.setup()")
    )

    assert report(web, tmp_path, TIDEGAUGE_STATEMENT_TIMEOUT_MS="1234") == ["1234ms"]
    assert report(command, tmp_path) == ["0"]
