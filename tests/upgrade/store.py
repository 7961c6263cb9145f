"""Stores an installation of a release, for the test that upgrades it: `python -m tests.upgrade.store CHECKOUT`.

CHECKOUT: a checkout of the release. It runs with the packages of this Python; only the backup is taken by the command
of this checkout. The driver of `orders` is killed in its third batch, after the tasks of two states have written.
"""

import json
import os
import signal
import sys
import tarfile
import tempfile
import time
from contextlib import closing
from pathlib import Path

import psycopg

from tests.upgrade.installation import ANSWERS, BACKUP, Installation
from tidegauge.pipelines.embedded.data_dir import REPOSITORY
from tidegauge.pipelines.embedded.temporary import start_temporary_servers, temporary_database

# What people set; READ of installation.py reads it again.
SETTINGS = """
from django.contrib.auth.models import Group, User
from tidegauge.webapp.accounts.services import create_api_key
from tidegauge.webapp.api.saved_queries.services import create_version, publish
from tidegauge.webapp.console.saved_views.models import SavedView
from tidegauge.webapp.notify.alerts.models import AlertRule
from tidegauge.webapp.notify.webhooks import services
from tidegauge.webapp.notify.webhooks.models import Webhook

ada = User.objects.create_superuser("ada", password="only for the test of upgrades")
ada.groups.add(*Group.objects.all())
create_api_key("shop", ["read"], ada, states=["sales", "stock"], rate=5)
_, secret = create_api_key("all", ["read", "dead_letters", "maintain"], ada)
hook = Webhook(name="shop", url="https://shop.example/hook", kinds=["commit", "alert"], states=["sales"])
services.create(hook, by=ada)
rule = AlertRule.objects.create(name="late", pipelines=["orders"], lag_seconds=30, mail_to=["ada@shop.example"])
rule.webhooks.add(hook)
reads = [{"state": "sales", "where": ["orders>={least}"], "measures": ["orders"], "order_by": "-orders", "limit": 3}]
parameters = {"least": {"type": "bigint", "default": 2}}
publish(create_version("busiest", {"parameters": parameters, "reads": reads}), by="ada")
SavedView.objects.create(owner=ada, name="Tea", state="sales", question={"prefix": "article-1"}, is_shared=True)
print(secret)
"""
OPEN = "SELECT open_txid FROM tidegauge.pipeline WHERE name = 'orders' AND open_txid IS NOT NULL"


def main(checkout: Path) -> None:
    start_temporary_servers()
    with temporary_database(os.environ["DATABASE_URL"]) as dsn, tempfile.TemporaryDirectory() as folder:
        here = Installation(Path(folder), dsn, checkout)
        here.command("migrate", "-v0")
        here.receive(0, 1)
        here.command("run_pipeline", *here.pipelines, "--once", code=3)  # 3, because some input became dead letters
        key = here.shell(SETTINGS).strip()
        here.receive(2)
        kill_within_batch(here, dsn)
        release = here.shell("import tidegauge; print(tidegauge.__version__)").strip()
        saved = Path(folder, BACKUP)
        answers = here.answers(key)
        Installation(Path(folder), dsn, REPOSITORY).command("backup", str(saved))
        (saved / ANSWERS).write_text(json.dumps({"key": key, **answers}, sort_keys=True))
        with tarfile.open(Path(__file__).with_name(f"{release}.tar.xz"), "w:xz") as archive:
            archive.add(saved, BACKUP)


def kill_within_batch(here: Installation, dsn: str) -> None:
    """Start the driver of `orders`, and kill it while tasks wait for a row of `newest`, after others have written."""
    with (
        closing(psycopg.connect(dsn)) as blocking,
        closing(psycopg.connect(dsn, autocommit=True)) as conn,
    ):
        blocking.execute("SELECT FROM tidegauge_state.newest FOR UPDATE")
        driver = here.start("run_pipeline", "orders", start_new_session=True)
        try:
            deadline = time.monotonic() + 120
            while not written(conn):
                assert driver.poll() is None, driver.communicate()
                assert time.monotonic() < deadline
                time.sleep(0.1)
        finally:
            # With the JVM, whose tasks would write on.
            os.killpg(driver.pid, signal.SIGKILL)
            driver.communicate()
        blocking.rollback()
        while conn.execute("SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'").fetchall():
            time.sleep(0.1)
        assert conn.execute(OPEN).fetchone() is not None


def written(conn: psycopg.Connection) -> bool:
    """Return whether tasks of the open batch have written."""
    row = conn.execute(OPEN).fetchone()
    return row is not None and all(
        conn.execute(f"SELECT FROM tidegauge_state.{state} WHERE txid = %s LIMIT 1", row).fetchone() is not None
        for state in ("sales", "by_day")
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
