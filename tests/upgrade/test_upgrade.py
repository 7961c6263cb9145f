"""An installation of a release that is upgraded as docs/upgrade.md says reads the same, and counts on exactly."""

import json
import os
import re
import shutil
from collections import Counter
from itertools import chain
from pathlib import Path

import pytest

import tidegauge
from tests.redis_without import forget, redis_without
from tests.upgrade.installation import ANSWERS, BACKUP, Installation, orders
from tidegauge.pipelines.embedded.data_dir import REPOSITORY
from tidegauge.pipelines.embedded.temporary import temporary_database

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="the stored paths need Linux"),
]

STORED = sorted(Path(__file__).parent.glob("*.tar.xz"))
[STEPS] = re.findall(r"## In order.*?```sh\n(.*?)```", (REPOSITORY / "docs" / "upgrade.md").read_text(), re.DOTALL)
COMMANDS = re.findall(r"^tidegauge ([^#\n]+)", STEPS, re.MULTILINE)


@pytest.fixture
def without_stock():
    """Redis, without the state of the stored releases before and after."""
    with redis_without("stock") as client:
        yield
        forget(client, "stock")


def sales(*files: int) -> dict[str, dict[str, float]]:
    """Count orders and revenue per article in files, without Tidegauge."""
    counted: dict[str, dict[str, float]] = {}
    for order in chain.from_iterable(map(orders, files)):
        of_article = counted.setdefault(order["article"], {"orders": 0, "revenue": 0})
        of_article["orders"] += 1
        of_article["revenue"] += order["price"]
    return counted


def carts(*files: int) -> dict[str, dict[str, int]]:
    bought = Counter((order["customer"], order["article"]) for order in chain.from_iterable(map(orders, files)))
    return {
        customer: {article: number for (whose, article), number in bought.items() if whose == customer}
        for customer, _ in bought
    }


def by_key(entries: dict, *measures: str) -> dict:
    """Return the values of a state's entries, or some of their measures, by the first part of the key."""
    return {
        key[0]: {name: value[name] for name in measures} if measures else value for key, value, _ in entries["entries"]
    }


def test_every_release_before_this_one_is_stored():
    released = re.findall(r"^## (\d\S+)$", (REPOSITORY / "CHANGELOG.md").read_text(), re.MULTILINE)

    assert {*released} - {tidegauge.__version__} <= {file.name.removesuffix(".tar.xz") for file in STORED}


@pytest.mark.parametrize("stored", STORED, ids=lambda file: file.name)
def test_a_stored_release_reads_the_same_after_the_upgrade_and_counts_its_open_batch_once(
    stored, tmp_path, without_stock
):
    shutil.unpack_archive(stored, tmp_path)
    before = json.loads((tmp_path / BACKUP / ANSWERS).read_text())
    key = before.pop("key")

    with temporary_database(os.environ["DATABASE_URL"]) as dsn:
        here = Installation(tmp_path, dsn, REPOSITORY)
        here.receive(0, 1, 2)
        restored = here.command("restore", str(tmp_path / BACKUP))
        assert "of an earlier version of Tidegauge: run `tidegauge migrate`" in here.refused("pipelines")
        for command in COMMANDS:
            here.command(*command.split())
        assert here.answers(key) == before

        here.receive(3)
        here.command("run_pipeline", *here.pipelines, "--once", code=3)  # 3, because some input became dead letters
        after = here.answers(key)

    assert COMMANDS[-1] == "migrate"
    assert "the tables are of an earlier version: `tidegauge migrate`" in restored
    states = after["states"]
    assert by_key(states["sales"], "orders", "revenue") == sales(0, 1, 2, 3)
    assert by_key(states["stock"], "sold", "revenue") == {
        article: {"sold": each["orders"], "revenue": each["revenue"]} for article, each in sales(0, 1, 2, 3).items()
    }
    assert by_key(states["carts"]) == carts(0, 1, 2, 3)
    assert sum(value["orders"] for _, value, _ in states["by_day"]["entries"]) == 4 * 30
    assert [letters for _, letters, _ in after["letters"]] == [4]
    assert after["history"][-2:] == before["history"]
    assert {name: each["txid"] for name, each in states.items()} == dict.fromkeys(states, 4)
