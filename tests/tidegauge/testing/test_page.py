"""docs/testing.md: its files are written as the page has them, and its tests run."""

import re
import sys
from datetime import date
from importlib import import_module

import pytest

from tests.docs.blocks import blocks

pytestmark = pytest.mark.spark

BLOCKS = [block.text for block in blocks("python") if block.page == "testing.md"]
NAMES = [name for text in BLOCKS for name in re.findall(r"^def (test_\w+)", text, re.MULTILINE)]


@pytest.fixture
def page(tmp_path, monkeypatch):
    """The page's test module, all of whose blocks after the first three belong to it."""
    orders, conftest, *tests = BLOCKS
    assert conftest.endswith('pytest_plugins = ["tidegauge.testing.fixtures"]\n')
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "orders.py").write_text(orders)
    (tmp_path / "page_of_tests.py").write_text("\n".join(tests))
    monkeypatch.syspath_prepend(tmp_path)
    module = import_module("page_of_tests")
    module.JANUARY_DAY, module.FEBRUARY_DAY = date(2026, 1, 1), date(2026, 2, 1)
    yield module
    for name in ("page_of_tests", "shop.orders", "shop"):
        sys.modules.pop(name)


@pytest.mark.parametrize("name", NAMES)
def test_the_tests_of_the_page_pass(page, tidegauge_run, name):
    getattr(page, name)(tidegauge_run)
