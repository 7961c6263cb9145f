"""Thread pools of the web process: which requests share threads, how many there are, and when a request is refused.

Each thread keeps a database connection, so the sizes of the pools limit the connections of a process. A full pool
refuses requests at once while the others keep working, so searches and exports cannot hold the threads of lookups.
"""

import asyncio
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote

from django.conf import settings

from tidegauge.webapp.core.contention import Contention
from tidegauge.webapp.core.turns import Turns

Result = TypeVar("Result")

API = "/api/v1/"
STATUS_PATHS = frozenset({"/healthz", "/readyz", "/metrics"})
STATUS_THREADS = 2
# Parameters with which entries and groups read more rows than they return, and the start of such entries' cursors.
SEARCHED = frozenset({"search", "order_by", "where", "by"})
SEARCH_CURSOR = "search."
# Calls that take such parameters in their body, which has not been read when the pool is chosen.
SEARCHED_BY_POST = ("/entries", "/groups", "/windows")
# The same for a state's pages in the dashboard.
SEARCHED_ON_PAGES = frozenset({"q", "order", "where", "group"})
# Pages that always read ranges of rows: the data of a state's charts by time, boards, and SQL.
FOLDED_FOR_PAGES = re.compile(r"/states/.*/explore/series|/boards/[^/]+|/sql")
RUN_OF_SAVED_QUERY = re.compile(r"/api/v1/saved-queries/([^/]+(?:/versions/[0-9]+)?)")
# Saved queries that read no more rows than they return, by the name in their address. A process learns this when it
# runs the query for the first time, and treats it as a search until then.
_quick_queries: set[str] = set()

# A thread that needs the interpreter while another one computes gets it after this time instead of Python's 5 ms,
# because the event loop needs it several times for each lookup.
SWITCH_SECONDS = 0.0005

# Requests that nobody is known to have sent, such as those of people who sign in.
STRANGERS, STRANGER_THREADS = "strangers", 3


class Share(NamedTuple):
    """What one caller may have of a pool. threads: at once. rest: how many times longer one rests than its job cost.

    A job costs the time for which it computed, because lookups need the same interpreter, and of the time for which it
    waited up to `most_waited` seconds, because the database computes meanwhile, and lookups need that as well.
    """

    threads: int
    rest: float = 0.0
    most_waited: float = 0.0


# Strangers together compute for a quarter of the time, whatever they are called.
OF_STRANGERS = Share(STRANGER_THREADS, rest=4.0 * STRANGER_THREADS - 1)
# A caller, for half of the time while another one asks. A statement that takes longer often waits for a lock.
CONTENDED = Share(1, rest=1.0, most_waited=0.25)

Job = tuple[str, Callable[[], Any], "asyncio.Future[Any]"]  # whose it is, what to do, and what waits for it


class Pool:
    """Threads, for which clients take turns. Everything but `_work` runs in the thread of the event loop.

    share: returns what a client may have of them now, which by default is all.
    """

    def __init__(self, name: str, threads: int, share: Callable[[], Share] | None = None) -> None:
        self.name = name
        self._share = share or (lambda: Share(threads))
        self._turns = Turns(name, threads, lambda: self._share().threads)
        self._started = 0
        self._given: SimpleQueue[Job] = SimpleQueue()

    async def run(self, job: Callable[[], Result], client: str, *, admitted: bool = False) -> Result:
        """Return the job's result. admitted: it continues an admitted job, so it is never refused.

        Raises PoolFullError.
        """
        done: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._turns.wait(client, partial(self._give, (client, job, done)), admitted=admitted)
        return await done

    def _give(self, job: Job) -> None:
        if self._started == self._turns.busy:
            threading.Thread(target=self._work, name=f"{self.name}-{self._started + 1}", daemon=True).start()
            self._started += 1
        self._given.put(job)

    def _work(self) -> None:
        while True:
            client, job, done = self._given.get()
            began, computed_before = time.monotonic(), time.thread_time()
            try:
                result, error = job(), None
            except BaseException as raised:
                result, error = None, raised
            computed = time.thread_time() - computed_before
            waited = time.monotonic() - began - computed
            with suppress(RuntimeError):  # the loop is closed, because the process ends
                done.get_loop().call_soon_threadsafe(self._finish, client, done, result, error, computed, waited)
            del client, job, done, result, error

    def _finish(
        self,
        client: str,
        done: asyncio.Future[Any],
        result: Any,
        error: BaseException | None,
        computed: float,
        waited: float,
    ) -> None:
        share = self._share()
        if rest := (computed + min(waited, share.most_waited)) * share.rest:
            done.get_loop().call_later(rest, self._turns.end, client)
        else:
            self._turns.end(client)
        if done.cancelled():
            return
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)


def loop_connections() -> int:
    """Return how many of the connections of lookups the event loop has; the others are those of threads."""
    return max(1, settings.TIDEGAUGE_LOOKUP_THREADS // 4)


def pools(contention: Contention) -> Mapping[str, Pool]:
    """Return the pools of a process by name, and let its threads give way to each other sooner."""
    sys.setswitchinterval(SWITCH_SECONDS)
    sizes = {
        "lookups": max(1, settings.TIDEGAUGE_LOOKUP_THREADS - loop_connections()),
        "pages": settings.TIDEGAUGE_PAGE_THREADS,
        "searches": settings.TIDEGAUGE_SEARCH_THREADS,
        "exports": settings.TIDEGAUGE_EXPORT_THREADS,
    }

    def share(threads: int) -> Share:
        # Half, so that a caller who asks for the first time finds few threads that compute already.
        return CONTENDED if contention.is_there else Share(max(1, threads // 2))

    each = {name: Pool(name, threads, partial(share, threads)) for name, threads in sizes.items()}
    strangers = Pool(STRANGERS, STRANGER_THREADS, lambda: OF_STRANGERS)
    return each | {STRANGERS: strangers, "checks": Pool("checks", STATUS_THREADS)}


def pool_of(environ: Mapping[str, Any], *, is_stranger: bool = False) -> str:
    """Return the name of the pool for a request. The request is not authenticated yet, so this grants nothing."""
    path, query = environ["PATH_INFO"], environ["QUERY_STRING"]
    if path in STATUS_PATHS:
        return "checks"
    if is_stranger:
        return STRANGERS
    if not path.startswith(API):
        is_asked = path.startswith("/states/") and not SEARCHED_ON_PAGES.isdisjoint(dict(_given(query)))
        return "searches" if is_asked or FOLDED_FOR_PAGES.fullmatch(path) else "pages"
    if path.endswith("/export"):
        return "exports"
    if environ["REQUEST_METHOD"] == "POST" and path.endswith(SEARCHED_BY_POST):
        return "searches"
    saved = RUN_OF_SAVED_QUERY.fullmatch(path)
    if saved is not None:
        return "lookups" if saved[1] in _quick_queries else "searches"
    return "searches" if _is_search(query) else "lookups"


def saved_query_ran(name: str, version: int | None, *, is_search: bool) -> None:
    """Remember how expensive a published saved query is. version: None for the newest one."""
    (_quick_queries.discard if is_search else _quick_queries.add)(
        name if version is None else f"{name}/versions/{version}"
    )


def _is_search(query: str) -> bool:
    return any(text.startswith(SEARCH_CURSOR) if name == "cursor" else name in SEARCHED for name, text in _given(query))


def _given(query: str) -> Iterator[tuple[str, str]]:
    """Yield names and texts of the parameters that are not empty, decoded as the views will read them."""
    for part in query.split("&"):
        name, _, text = part.partition("=")
        if text:
            yield unquote(name), unquote(text)
