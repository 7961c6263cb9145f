"""What counts as a module, an importer, a comment, a mention of Redis, a re-entry."""

import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.entered_files import Tracer, summary
from benchmarks.structure import ROOT, importers, measure, modules_of

FILES = {
    "app/__init__.py": "",
    "app/big.py": "LINES = 1\n" * 401,
    "app/migrations/first.py": "import redis\n",
    "app/store/__init__.py": '"""The store."""\n',
    "app/store/rows.py": (
        '"""Rows in Redis."""\n'
        "# redis\n"
        "def read(key):\n"
        '    """Read one\n'
        "    # from Redis\n"
        '    row."""\n'
        "    return key\n"
    ),
    "app/store/redis.py": "import redis\n",
    "app/views.py": "import app.store.redis\nfrom app.store import rows\n\n\nNAMES = {'REDIS_URL': rows.read}\n",
    "app/tasks.py": "def run():\n    from redis.client import Redis\n\n    from app.store.rows import read\n",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for path, text in FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


def test_empty_files_and_migrations_are_not_modules(tree):
    names = [module.name for module in modules_of(tree, ["app"])]

    assert names == ["app.big", "app.store", "app.store.redis", "app.store.rows", "app.tasks", "app.views"]


def test_importers_are_found_at_the_top_and_in_functions(tree):
    found = importers(modules_of(tree, ["app"]))

    assert found["app/store/rows.py"] == {"app/views.py", "app/tasks.py"}
    assert found["app/store/redis.py"] == {"app/views.py"}
    assert found["app/store/__init__.py"] == set()


def test_comments_and_docstrings_do_not_count_as_naming_redis(tree):
    modules = measure(tree, ["app"], allowed=["app/store/redis*"])["modules"]

    assert modules["import redis"] == ["app/tasks.py"]
    assert modules["name Redis"] == ["app/tasks.py", "app/views.py"]


def test_sizes_of_files_functions_and_comments(tree):
    measured = measure(tree, ["app"], allowed=[])

    figures = measured["figures"]["app"]
    assert (figures["modules"], figures["lines"], figures["functions"]) == (6, 401 + 1 + 7 + 1 + 5 + 4, 2)
    assert (figures["lines per module, median"], figures["lines per function, median"]) == (4.5, 4.5)
    assert figures["comment lines per 100"] == round(100 / figures["lines"], 1)
    assert measured["modules"]["over 400 lines"] == ["app/big.py"]
    assert measured["modules"]["one importer, under 60 lines"] == ["app/store/redis.py"]


def test_the_figures_of_the_packages_add_up_to_those_of_the_repository():
    figures = measure(ROOT)["figures"]

    everything = figures.pop("all")
    for counted in ("modules", "lines", "functions", "one importer", "name Redis"):
        assert everything[counted] == sum(package[counted] for package in figures.values())
    assert everything["modules"] > 100


def test_a_re_entry_is_a_call_from_another_file_into_one_that_was_entered():
    calls = [("", "a.py:run"), ("a.py:run", "b.py:read"), ("b.py:read", "a.py:key"), ("a.py:run", "a.py:key")]
    calls += [("b.py:read", "a.py:key"), ("", "b.py:read")]

    counted = summary(calls)

    assert counted == {
        "files entered": 2,
        "re-entries": 2,
        "re-entering calls, distinct": 1,
        "order": ["a.py", "b.py"],
        "re-entered": {"a.py": 2},
    }


def test_calls_are_recorded_and_imports_class_bodies_and_resumptions_are_not():
    code = (
        "def rows():\n    yield 1\n    yield 2\n\n"
        "def total():\n    class Made:\n        pass\n    return sum(map(int, rows()))\n\n"
        "total()\n"
    )
    module: dict[str, Any] = {}
    tracer, before = Tracer(), sys.getprofile()

    sys.setprofile(tracer)
    try:
        with tracer.recording() as calls:
            exec(compile(code, str(ROOT / "pipelines" / "made_up.py"), "exec"), module)  # noqa: S102
            assert calls == []
            module["total"]()
        module["total"]()
    finally:
        sys.setprofile(before)

    assert calls == [("", "pipelines/made_up.py:total"), ("pipelines/made_up.py:total", "pipelines/made_up.py:rows")]
