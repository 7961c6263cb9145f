"""Pools of threads: who is next, who is refused, and which pool a request is for."""

import asyncio
import sys
import threading
import time
from functools import partial

import pytest
from django.conf import settings

from tidegauge.webapp.core import pools, turns
from tidegauge.webapp.core.contention import Contention
from tidegauge.webapp.core.pools import Pool, Share, pool_of
from tidegauge.webapp.core.turns import PoolFullError


def environ(path: str, query: str = "", method: str = "GET", **headers: str) -> dict[str, str]:
    return {"PATH_INFO": path, "QUERY_STRING": query, "REQUEST_METHOD": method, "REMOTE_ADDR": "10.0.0.1"} | headers


def test_clients_take_turns_however_many_requests_each_has():
    order: list[str] = []

    async def run() -> None:
        pool, held = Pool("lookups", 1), threading.Event()
        jobs = [asyncio.create_task(pool.run(held.wait, "first"))]
        await asyncio.sleep(0)
        for name in ("a1", "a2", "a3", "b1", "c1", "c2"):
            jobs.append(asyncio.create_task(pool.run(lambda name=name: order.append(name), name[0])))
            await asyncio.sleep(0)
        held.set()
        await asyncio.gather(*jobs)

    asyncio.run(run())

    assert order == ["a1", "b1", "c1", "a2", "c2", "a3"]


def test_a_pool_that_is_full_refuses_and_goes_on(monkeypatch):
    monkeypatch.setattr(turns, "MOST_WAITING", 3)
    monkeypatch.setattr(turns, "MOST_WAITING_EACH", 2)

    async def run() -> list[object]:
        pool, held = Pool("lookups", 1), threading.Event()
        clients = ["a", "a", "a", "a", "b", "c"]
        jobs = []
        for client in clients:
            jobs.append(asyncio.create_task(pool.run(held.wait, client)))
            await asyncio.sleep(0)
        part = asyncio.create_task(pool.run(held.wait, "a", admitted=True))
        await asyncio.sleep(0)
        held.set()
        results = await asyncio.gather(*jobs, return_exceptions=True)
        assert await part is True
        return [*results, await pool.run(held.wait, "c")]

    results = asyncio.run(run())

    assert [isinstance(result, PoolFullError) for result in results] == [False, False, False, True, False, True, False]


def test_an_error_of_a_job_is_that_of_its_request():
    def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        asyncio.run(Pool("lookups", 1).run(fail, "a"))


def test_a_thread_that_cannot_be_started_leaves_the_pool_as_it_was(monkeypatch):
    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def run() -> str:
        pool = Pool("lookups", 1)
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", fail)
            with pytest.raises(RuntimeError):
                await pool.run(str, "a")
        async with asyncio.timeout(20):
            return await pool.run(lambda: "answered", "a")

    assert asyncio.run(run()) == "answered"


def test_threads_give_way_soon(monkeypatch):
    given = []
    monkeypatch.setattr(sys, "setswitchinterval", given.append)

    pools.pools(Contention())

    assert given == [pools.SWITCH_SECONDS]


def compute(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def test_threads_that_have_to_rest_do_so_after_a_job():
    async def run() -> float:
        pool, began = Pool("strangers", 2, lambda: Share(2, rest=7.0)), time.monotonic()
        for _ in range(3):
            await pool.run(lambda: compute(0.02), "a")
        return time.monotonic() - began

    # The third job waits for one of two threads, which rests seven times as long as it has computed.
    assert asyncio.run(run()) >= 8 * 0.02 + 0.02


def test_a_thread_rests_for_what_its_job_has_waited_as_well_but_not_for_long():
    async def run(most_waited: float) -> float:
        pool, began = Pool("lookups", 1, lambda: Share(1, rest=4.0, most_waited=most_waited)), time.monotonic()
        for _ in range(2):
            await pool.run(partial(time.sleep, 0.1), "a")
        return time.monotonic() - began

    assert asyncio.run(run(0.0)) < 0.4
    assert 0.2 + 4 * 0.05 <= asyncio.run(run(0.05)) < 0.6
    assert asyncio.run(run(1.0)) >= 0.2 + 4 * 0.1


def test_a_job_that_fails_rests_as_well():
    def fail() -> None:
        compute(0.02)
        raise KeyError("x")

    async def run() -> float:
        pool, began = Pool("strangers", 1, lambda: Share(1, rest=3.0)), time.monotonic()
        for _ in range(2):
            with pytest.raises(KeyError):
                await pool.run(fail, "a")
        return time.monotonic() - began

    assert asyncio.run(run()) >= 0.02 + 3 * 0.02 + 0.02


async def at_once(pool: Pool, *clients: str) -> list[str]:
    """The clients whose jobs run at the same time, one job for each name; all jobs have ended afterwards."""
    running: list[str] = []
    held = threading.Event()

    def job(client: str) -> None:
        running.append(client)
        held.wait()

    jobs = [asyncio.create_task(pool.run(partial(job, client), client)) for client in clients]
    await asyncio.sleep(0.2)
    began = sorted(running)
    held.set()
    await asyncio.gather(*jobs)
    assert sorted(running) == sorted(clients)
    return began


def test_a_caller_has_half_of_the_threads_and_one_once_another_caller_asks():
    async def run() -> tuple[list[str], list[str]]:
        contention = Contention()
        contention.note("a")
        pool = pools.pools(contention)["pages"]
        alone = await at_once(pool, *"aaaaaaaa")
        contention.note("b")
        return alone, await at_once(pool, *"aaaabb")

    alone, together = asyncio.run(run())

    assert (alone, together) == (["a"] * (settings.TIDEGAUGE_PAGE_THREADS // 2), ["a", "b"])


def test_what_waits_begins_once_its_caller_may_have_more():
    share = [Share(1)]

    async def run() -> list[int]:
        pool, first, second = Pool("lookups", 3, lambda: share[0]), threading.Event(), threading.Event()
        ended: list[str] = []
        jobs = [asyncio.create_task(pool.run(first.wait, "a"))]
        await asyncio.sleep(0)
        for number in range(3):
            jobs.append(asyncio.create_task(pool.run(lambda n=number: (second.wait(), ended.append(n)), "a")))
        await asyncio.sleep(0)
        share[0] = Share(3)
        first.set()
        await jobs[0]
        busy = pool._turns.busy
        second.set()
        await asyncio.gather(*jobs)
        return [busy, len(ended)]

    assert asyncio.run(run()) == [3, 3]


def test_there_is_contention_for_a_while_after_another_caller_asked(monkeypatch):
    contention, found = Contention(), []
    for caller, at in (("a", 100.0), ("a", 101.0), ("b", 102.0), ("a", 103.0), ("a", 111.9), ("a", 112.1)):
        monkeypatch.setattr(time, "monotonic", lambda at=at: at)
        contention.note(caller)
        found.append(contention.is_there)

    assert found == [False, False, True, True, True, False]

    contention.note("b")
    monkeypatch.setattr(time, "monotonic", lambda: 1.0)  # after a restart of the machine
    assert not contention.is_there


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        (environ("/api/v1/states/s/lookup", method="POST"), "lookups"),
        (environ("/api/v1/states/s/entries", "prefix=J"), "lookups"),
        (environ("/api/v1/states/s/entries", "search=J"), "searches"),
        (environ("/api/v1/states/s/entries", "limit=5&order_by=-n"), "searches"),
        (environ("/api/v1/states/s/entries", "where=n>1"), "searches"),
        (environ("/api/v1/states/s/entries", "search=J="), "searches"),
        (environ("/api/v1/states/s/entries", "order%5Fby=-n"), "searches"),
        (environ("/api/v1/states/s/entries", "search="), "lookups"),
        (environ("/api/v1/states/s/entries", "cursor=%73earch.WyJzIl0.x"), "searches"),
        (environ("/api/v1/states/s/entries", "cursor=WyJzIl0.x"), "lookups"),
        (environ("/api/v1/states/s/entries", method="POST"), "searches"),
        (environ("/api/v1/states/s/groups", method="POST"), "searches"),
        (environ("/api/v1/states/s/windows", method="POST"), "searches"),
        (environ("/api/v1/states/s/export"), "exports"),
        (environ("/api/v1/states/s/export", "format=arrow&where=n>1"), "exports"),
        (environ("/states/s/"), "pages"),
        (environ("/states/s/", "q=J"), "searches"),
        (environ("/states/s/", "q=&order=n"), "searches"),
        (environ("/states/s/", "where=n>1"), "searches"),
        (environ("/states/s/", "q=&order=&where="), "pages"),
        (environ("/states/s/", "by=n&after=[1]"), "pages"),
        (environ("/states/s/explore"), "pages"),
        (environ("/states/s/explore", "group=day"), "searches"),
        (environ("/states/s/explore/series", "since=7"), "searches"),
        (environ("/states/s/compare/series", "key=1"), "pages"),
        (environ("/api/v1/saved-queries"), "lookups"),
        (environ("/api/v1/saved-queries/top"), "searches"),
        (environ("/api/v1/saved-queries/top/versions/2"), "searches"),
        (environ("/api/v1/saved-queries/openapi"), "searches"),
        (environ("/api/v1/saved-queries/top/openapi"), "lookups"),
        (environ("/api/v1/saved-queries/top/versions/2/openapi"), "lookups"),
        (environ("/admin/"), "pages"),
        (environ("/healthz"), "checks"),
    ],
)
def test_each_kind_of_request_has_a_pool(asked, name):
    assert pool_of(asked) == name


@pytest.mark.parametrize("path", ["/login", "/states/s/", "/api/v1/states", "/api/v1/states/s/export", "/api/docs"])
def test_what_a_stranger_asks_is_for_the_threads_of_strangers_but_for_the_status(path):
    assert pool_of(environ(path, "search=J"), is_stranger=True) == "strangers"
    assert pool_of(environ("/healthz"), is_stranger=True) == "checks"


def test_a_saved_query_that_is_no_search_is_answered_as_lookups_are_once_it_is_known(monkeypatch):
    monkeypatch.setattr(pools, "_quick_queries", set())
    pools.saved_query_ran("share", None, is_search=False)
    pools.saved_query_ran("share", 1, is_search=False)

    paths = [f"/api/v1/saved-queries/{name}" for name in ("share", "share/versions/1", "share/versions/2", "top")]
    assert [pool_of(environ(path)) for path in paths] == ["lookups", "lookups", "searches", "searches"]
    pools.saved_query_ran("share", None, is_search=True)
    assert [pool_of(environ(path)) for path in paths] == ["searches", "lookups", "searches", "searches"]
