"""Progress of pipelines for people: on a terminal a table that is redrawn; elsewhere the log is enough."""

import logging
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from django.db import Error, connection
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tidegauge.state_backends.errors import TidegaugeError
from tidegauge.webapp.catalog import queries
from tidegauge.webapp.catalog.pipeline_status import PipelineStatus

DRAWN_SECONDS = 1.0


def is_wanted() -> bool:
    """Return whether standard error is a terminal, and LOG_FORMAT does not ask for log lines there."""
    return sys.stderr.isatty() and not os.environ.get("LOG_FORMAT")


@contextmanager
def live_progress(names: Sequence[str], *, wanted: bool) -> Iterator[None]:
    """Show how pipelines are doing until the end of the block, with warnings and errors above.

    wanted: see is_wanted. If false this shows nothing, because the log then has a line per batch.
    """
    if not wanted:
        yield
        return
    ended = threading.Event()
    with Live(console=Console(stderr=True), auto_refresh=False) as live, _warnings_alone():
        drawing = threading.Thread(target=_draw, args=(live, Progress(names), ended), daemon=True)
        drawing.start()
        try:
            yield
        finally:
            ended.set()
            drawing.join()


def _draw(live: Live, progress: "Progress", ended: threading.Event) -> None:
    """Draw once a second, and for the last time when the block ends."""
    try:
        while not ended.wait(DRAWN_SECONDS):
            live.update(progress.table(), refresh=True)
        live.update(progress.table(), refresh=True)
    finally:
        connection.close()  # because each thread has its own


@contextmanager
def _warnings_alone() -> Iterator[None]:
    """Hide log lines below warnings, and write the others to the standard error that Live has redirected."""
    handlers = [each for each in logging.getLogger().handlers if isinstance(each, logging.StreamHandler)]
    before = [(handler, handler.stream, handler.level) for handler in handlers]
    for handler in handlers:
        handler.setStream(sys.stderr)
        handler.setLevel(logging.WARNING)
    try:
        yield
    finally:
        for handler, stream, level in before:
            handler.setStream(stream)
            handler.setLevel(level)


class Progress:
    """The progress of some pipelines, read from the database; while it does not answer, as it was last."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._table: RenderableType = Text("starting Spark ..")
        self._line = ""

    def table(self) -> RenderableType:
        with _while_the_database_answers():
            if found := self._pipelines():
                self._table = Group(_of_pipelines(found), _of_states(found))
        return self._table

    def line(self) -> str:
        with _while_the_database_answers():
            self._line = "; ".join(
                f"{each.name} {each.status}, batch {each.committed_txid}, {_rate(each)} events/s, "
                f"{_pending(each)} pending"
                for each in self._pipelines()
            )
        return self._line

    def _pipelines(self) -> list[PipelineStatus]:
        return [each for each in queries.pipelines() if each.name in self._names]


@contextmanager
def _while_the_database_answers() -> Iterator[None]:
    try:
        yield
    except (Error, TidegaugeError):  # the driver reports it and tries again
        connection.close()  # because Django would go on with a broken one


def _of_pipelines(pipelines: Sequence[PipelineStatus]) -> Table:
    table = _table("pipeline", "status", "batch", "events/s", "pending", "lag")
    for each in pipelines:
        lag = "?" if each.lag_seconds is None else f"{each.lag_seconds:,.0f} s"
        table.add_row(each.name, each.status, f"{each.committed_txid:,}", _rate(each), _pending(each), lag)
    return table


def _rate(pipeline: PipelineStatus) -> str:
    return f"{pipeline.rows_per_second or 0:,.0f}"


def _pending(pipeline: PipelineStatus) -> str:
    return "{count:,} {unit}".format(**pipeline.pending) if pipeline.pending else "?"


def _of_states(pipelines: Sequence[PipelineStatus]) -> Table:
    table = _table("state", "pipeline", "keys", "guarantee")
    for each in pipelines:
        for state in queries.states(each.name):
            table.add_row(state.name, each.name, f"{state.keys_estimate:,}", state.guarantee)
    return table


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        numeric = heading in ("batch", "events/s", "pending", "lag", "keys")
        table.add_column(heading, justify="right" if numeric else "left")
    return table
