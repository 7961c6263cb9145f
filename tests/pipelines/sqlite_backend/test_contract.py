"""docs/write-a-backend.md, followed step by step: its example passes the contract of backing maps and maps."""

import re
import sqlite3
from pathlib import Path

import pytest

from tests.contracts.backing_map import BackingMapContract
from tests.contracts.guarded_map import GuardedMapContract
from tests.contracts.map_state import NonTransactionalMapContract, OpaqueMapContract, TransactionalMapContract
from tests.pipelines.sqlite_backend import backend
from tests.pipelines.sqlite_backend.backend import SqliteBackingMap, SqliteUpkeep

PAGE = Path(__file__).parents[3] / "docs" / "write-a-backend.md"


@pytest.fixture
def conn():
    return sqlite3.connect(":memory:", isolation_level=None)


@pytest.fixture
def new_backing(conn):
    return lambda spec: SqliteBackingMap(conn, spec)


@pytest.fixture
def new_upkeep(conn):
    return lambda spec: SqliteUpkeep(conn, spec)


class TestSqliteBackingMap(BackingMapContract): ...


class TestSqliteGuard(GuardedMapContract): ...


class TestOpaqueMap(OpaqueMapContract): ...


class TestTransactionalMap(TransactionalMapContract): ...


class TestNonTransactionalMap(NonTransactionalMapContract): ...


def test_the_page_shows_the_code_that_runs():
    code = [Path(file).read_text() for file in (__file__, backend.__file__)]
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)

    assert len(blocks) >= 5
    assert [block for block in blocks if not any(block.rstrip() in source for source in code)] == []
