"""A project of a user's own, outside this checkout: a package with two pipelines, named in its pyproject.toml."""

import os
import subprocess
import sys
from pathlib import Path

from tidegauge.pipelines.embedded.data_dir import REPOSITORY

PYPROJECT = """
[project]
name = "acme"

[tool.tidegauge]
pipelines = ["acme.orders", "acme.clicks"]
"""

STEPS = '''
def split(line):
    """Yield the article and the number of an order, as `bread 2`. Runs in Spark's Python workers."""
    article, number = line.split()
    yield article, int(number)
'''

ORDERS = '''
from pathlib import Path

from acme.steps import split
from tidegauge import Count, Pipeline, StateSpec, Stream, Sum, TextFiles

ORDERED = StateSpec("ordered", {"article": "text"}, {"orders": Count(), "articles": Sum("number", type="bigint")})


def orders(folder: Path, files_per_batch: int = 1) -> Pipeline:
    """Orders per article."""
    lines = Stream.read(TextFiles(folder, files_per_batch=files_per_batch))
    sold = lines.each(split, ["line"], article="string", number="bigint")
    return Pipeline("orders", [sold.group_by("article").persistent_aggregate(ORDERED)])
'''

CLICKS = """
from tidegauge import Count, JsonFiles, Pipeline, StateSpec, Stream

CLICKED = StateSpec("clicked", {"page": "text"}, {"clicks": Count()})

clicks = Stream.read(JsonFiles("landing/clicks", schema="page string NOT NULL"))
CLICKS = Pipeline("clicks", [clicks.group_by("page").persistent_aggregate(CLICKED)], "Clicks per page.")
"""

WRITTEN = 1_750_000_000  # seconds since 1970: when the first file was written


class Project:
    """The project in a folder, with input for both pipelines. dsn: the database that its commands use."""

    def __init__(self, folder: Path, dsn: str) -> None:
        self.folder = folder
        self._dsn = dsn
        files = {
            "pyproject.toml": PYPROJECT,
            "acme/__init__.py": "",
            "acme/steps.py": STEPS,
            "acme/orders.py": ORDERS,
            "acme/clicks.py": CLICKS,
            "home/input/orders/1.txt": "bread 2\nmilk 1\n",
            "home/input/orders/2.txt": "bread 3\n",
            "landing/clicks/1.json": '{"page": "/"}\n',
        }
        for second, (name, text) in enumerate(files.items()):
            self.write(name, text)
            # A second apart, because Spark reads files by age, and those of one tick in any order.
            os.utime(folder / name, (WRITTEN + second, WRITTEN + second))

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def environ(self) -> dict[str, str]:
        mine = {"DATABASE_URL": self._dsn, "TIDEGAUGE_HOME": str(self.folder / "home"), "LOG_FORMAT": "text"}
        return os.environ | mine

    def start(self, *words: str, **environ: str) -> subprocess.Popen[str]:
        """Start a command of Tidegauge's in the project's folder."""
        return subprocess.Popen(
            [sys.executable, str(REPOSITORY / "manage.py"), *words],
            cwd=self.folder,
            env=self.environ() | environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def command(self, *words: str, code: int = 0, **environ: str) -> tuple[str, str]:
        """Run a command, expect its exit code, and return what it wrote to standard output and standard error."""
        process = self.start(*words, **environ)
        out, said = process.communicate(timeout=240)
        assert process.returncode == code, said
        return out, said
