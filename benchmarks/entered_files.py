"""Counts how many of this project's files one batch, one lookup and one event enter.

- call: a function of the three packages is called. Its caller is the nearest project function below it on the stack,
  with or without library functions in between; there may be none. Not counted are calls while a module is imported,
  class bodies, methods that `dataclass` generates (they have no file), and resumptions of generators and coroutines.
  A generator or coroutine counts when its body begins, and its caller is the function that runs it then.
- entered: a file one of whose functions was called.
- re-entry: a call from another project file into a file that was entered before. Every such call counts, so the number
  grows with the rows; `re-entering calls, distinct` counts each pair of calling and called function once.

The runs are small and real, each in its own process:

- batch: word_count over a folder with two files, one file per batch, on Spark's local[1]. `driver` is what runs below
  foreachBatch, `executors` what runs in Spark's Python workers, which trace themselves.
- lookup: two keys over the WSGI application with an API key, its rate limit and all middleware.
- event: the ASGI application. `subscribe` is from the request to the first event, `change` from the notification of a
  commit to the event sent, without the commit itself.

"first" is the first run of its kind in a process, when nothing is cached. The other run follows it.
"""

import asyncio
import dis
import inspect
import io
import json
import multiprocessing
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from unittest.mock import patch
from wsgiref.util import setup_testing_defaults

from benchmarks.structure import PACKAGES, ROOT

WITHIN_SECONDS = 30.0
FIRST_LANDING = 1_700_000_000
PAGES = "bench_pages"  # the state, and the pipeline that feeds it
FUNCTION_BEGINS = bytes([dis.opmap["RESUME"], 0])

# Runs when Spark's Python daemon starts. The workers inherit its profile function, because they are forked from it.
SITECUSTOMIZE = "from benchmarks.entered_files import trace_process\ntrace_process({calls!r})\n"

# Caller and called function, each as `file:function`; the caller is empty if it is not in the project.
Call = tuple[str, str]


class Tracer:
    """A profile function for sys.setprofile. record: is called with each call."""

    def __init__(self, record: Callable[[Call], object] | None = None) -> None:
        self._record = record

    @contextmanager
    def recording(self) -> Iterator[list[Call]]:
        """Yield a list that collects all calls in the block, in the threads that have this profile function."""
        calls: list[Call] = []
        self._record = calls.append
        try:
            yield calls
        finally:
            self._record = None

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        record = self._record
        if record is None or event != "call" or not project_file(frame.f_code) or not is_called(frame):
            return
        below = [each.f_code for each in _stack(frame.f_back) if project_file(each.f_code)]
        if not any(code.co_name == "<module>" for code in below):
            record((_place(below[0]) if below else "", _place(frame.f_code)))


def is_called(frame: FrameType) -> bool:
    """Return whether a frame belongs to a function, not to a module or class, and is at the beginning of its body.

    A body begins at RESUME 0; a generator or coroutine that is resumed is at another RESUME (Python 3.11's dis).
    """
    code, at = frame.f_code, frame.f_lasti
    return bool(code.co_flags & inspect.CO_OPTIMIZED) and code.co_code[at : at + 2] == FUNCTION_BEGINS


@cache
def _relative(filename: str) -> str:
    path = Path(filename).resolve()  # tidegauge/pipelines is a link
    inside = path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in PACKAGES
    return str(path.relative_to(ROOT)) if inside else ""


def project_file(code: CodeType) -> str:
    """Return the path of the code's file relative to the repository, empty if it is not the project's."""
    return _relative(code.co_filename)


def _place(code: CodeType) -> str:
    return f"{project_file(code)}:{code.co_qualname}"


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def summary(calls: Sequence[Call]) -> dict[str, Any]:
    """Return the counts of a run, its files in the order entered, and how often each was re-entered."""
    order: dict[str, int] = {}
    reentries: list[Call] = []
    for call in calls:
        caller, called = (place.partition(":")[0] for place in call)
        if called not in order:
            order[called] = 0
        elif caller and caller != called:
            order[called] += 1
            reentries.append(call)
    counts = {
        "files entered": len(order),
        "re-entries": len(reentries),
        "re-entering calls, distinct": len({*reentries}),
    }
    return counts | {"order": list(order), "re-entered": {file: times for file, times in order.items() if times}}


def trace_process(calls: str) -> None:
    """Trace this process and those forked from it; append each call as a line to the file `calls`."""
    descriptor = os.open(calls, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    sys.setprofile(Tracer(lambda call: os.write(descriptor, f"{json.dumps(call)}\n".encode())))


def run() -> dict[str, Any]:
    """Return the summary of each run, by name. Needs Java; PostgreSQL and Redis are started if not configured."""
    from benchmarks.servers import database, redis_client

    summaries: dict[str, Any] = {}
    for measured in (batches, lookups, events):
        # A process each, because settings, signal handlers and caches are global.
        spawn = multiprocessing.get_context("spawn")
        with database() as conn, redis_client(), ProcessPoolExecutor(1, mp_context=spawn) as process:
            url = _database_url(conn.info.dbname)
            with patch.dict(
                os.environ,
                {"DATABASE_URL": url, "SECRET_KEY": "for-benchmarks-and-nothing-else-0123", "LOG_FORMAT": "json"},
            ):
                traces = process.submit(measured).result()
        summaries |= {name: summary(calls) for name, calls in traces.items()}
    return summaries


def _database_url(database: str) -> str:
    from urllib.parse import urlsplit

    return urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{database}").geturl()


def batches() -> dict[str, list[Call]]:
    from pyspark.sql.streaming import DataStreamWriter

    from tidegauge.pipelines.driver.driver import Driver, RunOptions
    from tidegauge.pipelines.jobs.word_count import word_count
    from tidegauge.pipelines.spark.session import start_session

    tracer = Tracer()
    driver: list[list[Call]] = []
    executors: list[list[Call]] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder, calls = Path(temporary), Path(temporary) / "calls"
        _write_words(folder / "input")
        (folder / "sitecustomize.py").write_text(SITECUSTOMIZE.format(calls=str(calls)))
        each_batch = DataStreamWriter.foreachBatch

        def trace_each(writer: DataStreamWriter, run_batch: Callable[..., None]) -> DataStreamWriter:
            def run_traced(*batch: Any) -> None:
                calls.write_text("")
                sys.setprofile(tracer)  # here, because it applies to the thread in which Spark calls foreachBatch
                with tracer.recording() as own:
                    run_batch(*batch)
                driver.append(own)
                executors.append([tuple(json.loads(line)) for line in calls.read_text().splitlines()])

            return each_batch(writer, run_traced)

        paths = os.pathsep.join([temporary, str(ROOT)])
        with patch.dict(os.environ, {"PYTHONPATH": paths}), patch.object(DataStreamWriter, "foreachBatch", trace_each):
            spark = start_session("structure", master="local[1]")
            try:
                options = RunOptions(folder / "checkpoint", once=True)
                Driver(word_count(folder / "input", 1), spark, os.environ["DATABASE_URL"], options).run()
            finally:
                spark.stop()
    return {
        "batch, first": driver[0] + executors[0],
        "batch": driver[1] + executors[1],
        "batch, driver": driver[1],
        "batch, executors": executors[1],
    }


def _write_words(folder: Path) -> None:
    folder.mkdir()
    for number, words in enumerate(["to be or not to be", "that is the question"]):
        (folder / f"{number}.txt").write_text(words + "\n")
        os.utime(folder / f"{number}.txt", (FIRST_LANDING + number,) * 2)


def lookups() -> dict[str, list[Call]]:
    from tidegauge.webapp.wsgi import application

    key = _migrate_and_make_key()
    _Pages().commit(["/home", "/cart"])
    tracer = Tracer()
    sys.setprofile(tracer)
    body = json.dumps({"keys": [["/home"], ["/cart"]]}).encode()

    def look_up() -> list[Call]:
        environ = {"REQUEST_METHOD": "POST", "PATH_INFO": f"/api/v1/states/{PAGES}/lookup", "HTTP_HOST": "localhost"}
        environ |= {"CONTENT_TYPE": "application/json", "CONTENT_LENGTH": str(len(body))}
        environ |= {"HTTP_AUTHORIZATION": f"Bearer {key}", "wsgi.input": io.BytesIO(body)}  # type: ignore[dict-item]
        setup_testing_defaults(environ)
        statuses: list[str] = []

        def start_response(status: str, *_: Any) -> Callable[[bytes], object]:
            statuses.append(status)
            return lambda _: None

        with tracer.recording() as calls:
            response = application(environ, start_response)
            answer = b"".join(response)
            response.close()
        if statuses != ["200 OK"] or b"missing" in answer:
            raise RuntimeError(f"the lookup answered {statuses}: {answer[:300]!r}")
        return calls

    return {"lookup, first": look_up(), "lookup": look_up()}


def events() -> dict[str, list[Call]]:
    from tidegauge.webapp.asgi import application

    key = _migrate_and_make_key()
    pages = _Pages()
    pages.commit(["/home", "/cart"])
    tracer = Tracer()
    threading.setprofile(tracer)
    sys.setprofile(tracer)
    return asyncio.run(_subscribe_twice(application, key, pages, tracer))


async def _subscribe_twice(application: Any, key: str, pages: "_Pages", tracer: Tracer) -> dict[str, list[Call]]:
    traces: dict[str, list[Call]] = {}
    for suffix in (", first", ""):
        client = _Client(application, key)
        with tracer.recording() as traces[f"event, subscribe{suffix}"]:
            stream = asyncio.create_task(client.subscribe())
            await client.next_event()
        # Not traced. The commit blocks the event loop, so the notification arrives only after it.
        pages.commit(["/home"])
        with tracer.recording() as traces[f"event, change{suffix}"]:
            await client.next_event()
        client.disconnected.set()
        await stream
    return traces


class _Client:
    """Subscribes to the state of the pages, and calls the application in the same way as a server."""

    def __init__(self, application: Any, key: str) -> None:
        headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {key}".encode())]
        self._scope = {"type": "http", "method": "GET", "path": f"/events/states/{PAGES}", "headers": headers}
        self._application = application
        self._sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.disconnected = asyncio.Event()

    async def subscribe(self) -> None:
        await self._application(self._scope | {"query_string": b""}, self._receive, self._sent.put)

    async def next_event(self) -> None:
        """Wait until an event is sent. Raises TimeoutError, and RuntimeError if the subscription is refused."""
        while b"event: " not in (message := await asyncio.wait_for(self._sent.get(), WITHIN_SECONDS)).get("body", b""):
            if message.get("status", 200) != 200:
                raise RuntimeError(f"the subscription was refused: {message}")

    async def _receive(self) -> dict[str, Any]:
        await self.disconnected.wait()
        return {"type": "http.disconnect"}


def _migrate_and_make_key() -> str:
    from django.core.management import call_command

    printed = io.StringIO()
    call_command("migrate", verbosity=0)
    call_command("create_api_key", "benchmark", stdout=printed, stderr=io.StringIO())
    return printed.getvalue().strip()


class _Pages:
    """Commits batches of a state with a changelog, as a driver does."""

    def __init__(self) -> None:
        import psycopg

        from tidegauge.state_backends import BatchLedger, Catalog, Count, StateSpec

        self._conn = psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)
        self._spec = StateSpec(PAGES, key={"page": "text"}, measures={"views": Count()}, changelog=True)
        Catalog(self._conn).register_pipeline(PAGES, spout="opaque")
        self._ledger = BatchLedger(self._conn, PAGES)
        self._ledger.acquire()
        Catalog(self._conn).register_states(PAGES, [self._spec], {PAGES: "exactly once"})
        self._ledger.bind("checkpoint")
        self._batches = 0

    def commit(self, pages: Sequence[str]) -> None:
        """Count one view of each page."""
        import pyarrow as pa

        from tidegauge.state_backends import Changelog, PostgresBackingMap

        batch = self._ledger.begin(self._batches)
        assert batch is not None
        rows = pa.RecordBatch.from_pylist([{"page": page, "views": 1} for page in pages])
        with self._conn.transaction():
            PostgresBackingMap(self._conn, self._spec).merge([rows], batch.txid, batch.batch_time)
            Changelog(self._conn, self._spec).append(batch.txid)
        self._ledger.commit(batch, rows_in=len(pages), keys_written={PAGES: len(pages)})
        self._batches += 1
