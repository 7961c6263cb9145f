"""An installation of some release: a project with the pipelines of shop.py, its input, and what can be read from it."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BACKUP, ANSWERS = "backup", "answers.json"

# The folder of the input, and the files of a batch, are the same in every run wherever the project is, because the
# ledger notes both: each process resolves this path by its own working folder, which is the project's.
INPUT = Path("/proc/self/cwd/input")
WRITTEN_AT = 1_764_000_000  # seconds since 1970

PYPROJECT = '[project]\nname = "shop"\n\n[tool.tidegauge]\npipelines = ["shop"]\n'

# Reads everything in the same words from each release: the API's answers about states, and what people set.
READ = """
import json
from urllib.parse import urlencode
from django.contrib.auth.models import User
from django.test import Client
from tidegauge.webapp.accounts.models import ApiKey
from tidegauge.webapp.api.saved_queries.models import SavedQuery
from tidegauge.webapp.console.saved_views.models import SavedView
from tidegauge.webapp.notify.alerts.models import AlertRule
from tidegauge.webapp.notify.webhooks.models import Webhook

client = Client(headers={"authorization": f"Bearer {KEY}", "host": "localhost"})

def get(path, **query):
    answer = client.get(f"/api/v1/{path}?{urlencode(query)}", secure=True)
    assert answer.status_code == 200, (path, answer.content)
    return answer.json()

def entries(state, **query):
    page = get(f"states/{state}/entries", limit=1000, **query)
    return {"txid": page["txid"], "entries": [[each["key"], each["value"], each["txid"]] for each in page["entries"]]}

def rows(model, *columns):
    return [list(row) for row in model.objects.order_by("pk").values_list(*columns)]

letters = get("pipelines/orders/dead-letters/groups")
states = ("sales", "by_day", "newest", "carts", "seen", "stock")
print(json.dumps({
    "states": {state: entries(state) for state in states},
    "earlier": entries("sales", at_txid=1),
    "history": [[each["txid"], each["value"]] for each in get("states/sales/history", key='["article-1"]')["versions"]],
    "query": [answer["entries"] for answer in get("saved-queries/busiest")["answers"]],
    "letters": [[group["reason"], group["letters"], group["replayable"]] for group in letters["groups"]],
    "people": [[user.username, user.check_password("only for the test of upgrades")] for user in User.objects.all()],
    "keys": rows(ApiKey, "name", "prefix", "scopes", "states", "rate"),
    "webhooks": rows(Webhook, "name", "url", "kinds", "states", "secret"),
    "rules": rows(AlertRule, "name", "pipelines", "lag_seconds", "mail_to", "webhooks__name"),
    "queries": rows(SavedQuery, "name", "version", "definition"),
    "views": rows(SavedView, "name", "state", "question", "owner__username"),
}))
"""


class Installation:
    """A project in a folder, whose commands are those of a checkout and use the database `dsn`."""

    pipelines = ("orders", "stock")

    def __init__(self, folder: Path, dsn: str, checkout: Path) -> None:
        self.folder, self.dsn, self.checkout = folder, dsn, checkout
        (folder / "pyproject.toml").write_text(PYPROJECT)
        shutil.copy(Path(__file__).with_name("shop.py"), folder)

    def receive(self, *numbers: int) -> None:
        """Let files of orders land in the input folder."""
        (self.folder / "input").mkdir(exist_ok=True)
        for number in numbers:
            file = self.folder / "input" / f"{number}.json"
            file.write_text("".join(f"{json.dumps(order)}\n" for order in orders(number)) + "{no order\n")
            os.utime(file, (WRITTEN_AT + number, WRITTEN_AT + number))

    def start(self, *words: str, **options: Any) -> subprocess.Popen[str]:
        environ = {
            "DATABASE_URL": self.dsn, "TIDEGAUGE_HOME": str(self.folder / "home"), "LOG_FORMAT": "text",
            "SECRET_KEY": "only-for-the-test-of-upgrades-0123456789",
        }  # fmt: skip
        if words[0] == "run_pipeline":
            words = (*words, "--input", str(INPUT))
        return subprocess.Popen(
            [sys.executable, str(self.checkout / "manage.py"), *words],
            cwd=self.folder, env=os.environ | environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            **options,
        )  # fmt: skip

    def command(self, *words: str, code: int = 0) -> str:
        """Run a command, expect its exit code, and return what it wrote to standard output."""
        return self._run(*words, code=code)[0]

    def refused(self, *words: str) -> str:
        """Run a command that must fail, and return what it wrote to standard error."""
        return self._run(*words, code=1)[1]

    def _run(self, *words: str, code: int) -> tuple[str, str]:
        process = self.start(*words)
        out, said = process.communicate(timeout=240)
        assert process.returncode == code, said
        return out, said

    def shell(self, program: str) -> str:
        return self.command("shell", "-v0", "-c", program)

    def answers(self, key: str) -> dict[str, Any]:
        """Return what READ reads with an API key."""
        return dict(json.loads(self.shell(f"KEY = {key!r}\n{READ}")))


def orders(number: int) -> Iterator[dict[str, Any]]:
    """Yield the orders in a file: small numbers of keys, each of which returns in every file."""
    for step in range(1, 31):
        yield {
            "article": f"article-{step * (number + 1) % 5}",
            "customer": f"customer-{step % 7}",
            "price": step * 10 + number,
            "at": f"2026-11-{1 + step % 3:02}T12:{number:02}:{step:02}Z",
        }
