"""The first hour on the command line: write a project, run its pipeline, kill it, go on, and look a key up."""

import json
import os
import subprocess
import sys
from pathlib import Path

import httpx
import psycopg
import pytest

from tests.harness.waiting import eventually
from tests.webapp.web_server import web_server
from tidegauge.init import init

CHECKOUT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.processes, pytest.mark.core]


class Shell:
    """Types commands in the folder of a project."""

    def __init__(self, folder: Path, dsn: str) -> None:
        self._folder = folder
        home = str(folder / ".tidegauge")
        own = {"PYTHONPATH": str(CHECKOUT), "DATABASE_URL": dsn, "TIDEGAUGE_HOME": home, "LOG_FORMAT": "text"}
        self._environ = os.environ | own

    def start(self, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tidegauge", *words]
        return subprocess.Popen(
            command, cwd=self._folder, env=self._environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def type(self, *words: str) -> str:
        process = self.start(*words)
        said, _ = process.communicate(timeout=240)
        assert process.returncode == 0, said
        return said


def land(folder: Path, name: str, *products: str) -> None:
    """Move a complete file of orders into the input folder."""
    complete = folder.parent / name
    complete.write_text("".join(json.dumps({"product": product, "amount": 4.5}) + "\n" for product in products))
    complete.replace(folder / name)


def test_a_pipeline_that_was_killed_goes_on_and_a_key_is_looked_up(database_url, tmp_path):
    shop = init("shop", tmp_path)
    landing = shop / "landing"
    landing.mkdir()
    shell = Shell(shop, database_url)
    shell.type("migrate")
    land(landing, "1.json", "tea", "bread")
    run = ["run", "orders", "--input", str(landing)]

    driver = shell.start(*run)
    with psycopg.connect(database_url, autocommit=True) as conn:
        eventually(lambda: committed(conn) == 1 or driver.poll() is not None, 120)
        land(landing, "2.json", "tea")
        driver.kill()
        driver.communicate()
        shell.type(*run, "--once")
        assert committed(conn) == 2

    key = shell.type("create_api_key", "shop", "--scope", "read").split()[-1]
    with web_server(tmp_path, DATABASE_URL=database_url) as web:
        answer = httpx.post(
            f"{web.url}/api/v1/states/revenue/lookup",
            json={"keys": [["tea"], ["coffee"]]},
            headers={"Authorization": f"Bearer {key}"},
        )

    assert answer.status_code == 200, answer.text
    tea, coffee = answer.json()["results"]
    assert tea["value"] == {"orders": 2, "revenue": 9.0}
    assert coffee["status"] == "missing"


def committed(conn: psycopg.Connection) -> int:
    row = conn.execute("SELECT committed_txid FROM tidegauge.pipeline WHERE name = 'orders'").fetchone()
    return row[0] if row else 0
