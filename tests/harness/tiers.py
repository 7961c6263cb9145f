"""Which tests `make test` runs, which of them run in the same process, and in which order.

`--tier quick` selects what `make test` runs: all tests that need no Spark session, server process or browser, and those
of the others that are marked `core`. `--tier rest` selects the others; without the option all tests run. With
`--reversed` the files run from the last to the first, which shows tests that depend on others.

With pytest-xdist a file stays in one process, and so do all tests that share an expensive resource, so that a run has
one Spark session, one web server, one browser and one wheel.
"""

from functools import cache
from itertools import groupby
from pathlib import Path

import hypothesis
import pytest
from hypothesis import HealthCheck

# A test that needs one of these fixtures, directly or through others, belongs to `--tier rest`. The value names the
# process of pytest-xdist that runs it.
EXPENSIVE = {
    "wheel": "wheel",  # before the broker, which one of these tests has for itself
    "tidegauge_spark": "spark",
    "broker": "spark",
    "cluster": "cluster",
    "web_process": "web",
    "events_process": "web",
    "chromium": "web",
}
LONG = {"browser", "long", "processes", "soak", "spark"}

# Not even imported for `make test`, so all of their tests belong to the rest.
REST_FOLDERS = ["tests/benchmarks", "tests/pipelines/cluster"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tier", choices=["quick", "rest"], help="run the tests of `make test`, or all others")
    parser.addoption("--reversed", action="store_true", help="run the last file first")


def pytest_configure(config: pytest.Config) -> None:
    # Time limits of examples fail on a loaded machine. A run without a tier tries other examples each time.
    hypothesis.settings.register_profile(
        "tests", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=config.option.tier is not None
    )
    hypothesis.settings.load_profile("tests")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if config.option.tier == "quick" and is_in_rest_folder(collection_path, config.rootpath) else None


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups in the same hook
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.tier:
        wanted = config.option.tier == "quick"
        taken: dict[bool, list[pytest.Item]] = {True: [], False: []}
        for item in items:
            taken[is_quick(item) == wanted].append(item)
        config.hook.pytest_deselected(items=taken[False])
        items[:] = taken[True]
    if config.option.reversed:
        files = [list(tests) for _, tests in groupby(items, lambda item: item.path)]
        items[:] = [item for tests in reversed(files) for item in tests]
    for item in items:
        item.add_marker(pytest.mark.xdist_group(process(item)))
    # What shares a process takes longest, so it starts first.
    items.sort(key=lambda item: process(item) not in EXPENSIVE.values())


@cache
def is_in_rest_folder(path: Path, root: Path) -> bool:
    return any(path.is_relative_to(root / folder) for folder in REST_FOLDERS)


def is_quick(item: pytest.Item) -> bool:
    if is_in_rest_folder(item.path, item.config.rootpath):
        return False
    if item.get_closest_marker("core"):
        return True
    return not LONG & {mark.name for mark in item.iter_markers()} and not expensive(item)


def process(item: pytest.Item) -> str:
    """Return the name of the tests that run in one process with this one."""
    return expensive(item) or str(item.path.relative_to(item.config.rootpath))


def expensive(item: pytest.Item) -> str:
    fixtures = getattr(item, "fixturenames", ())
    return next((name for fixture, name in EXPENSIVE.items() if fixture in fixtures), "")
