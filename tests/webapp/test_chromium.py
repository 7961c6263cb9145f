"""The browser that all tests share leaves nothing behind for the tests without one."""

import asyncio

import pytest
from django.db import connection

from tests.webapp.chromium import IN_A_BROWSER

pytestmark = IN_A_BROWSER


@pytest.fixture
def beside() -> list:
    """Connections that a test has opened beside the browser; torn down after it."""
    opened: list = []
    yield opened
    assert opened
    assert all(each.closed for each in opened)
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()


def test_a_connection_opened_beside_a_browser_is_closed_with_it(transactional_db, beside, chromium):
    connection.ensure_connection()
    beside.append(connection.connection)


def test_a_context_of_another_test_is_closed(chromium):
    assert chromium.contexts == []

    chromium.new_page()


def test_so_is_that_of_the_last_one(chromium):
    assert chromium.contexts == []


@pytest.mark.usefixtures("_chromium")
def test_a_test_without_a_browser_may_run_a_loop():
    async def answer() -> int:
        await asyncio.sleep(0)
        return 42

    assert asyncio.run(answer()) == 42
