"""What runs: pipelines, their states, checkpoints and declarations, and the worker."""

import socket
from collections.abc import Iterator
from importlib.util import find_spec

import psycopg

from tidegauge.pipelines.checkpoint.folder import checkpoint_id, last_batch
from tidegauge.pipelines.embedded.data_dir import data_dir
from tidegauge.pipelines.errors import PipelineError
from tidegauge.state_backends.errors import TidegaugeError
from tidegauge.webapp.commands.management.doctor.finding import ERROR, OK, WARNING, Finding
from tidegauge.webapp.core.writing import size as bytes_as_text

LEVELS = {"bad": ERROR, "watch": WARNING}

BOUND = """
SELECT p.name, p.checkpoint_id, p.epoch, p.committed_txid, d.host
FROM tidegauge.pipeline p LEFT JOIN tidegauge.driver d ON d.pipeline = p.name
WHERE p.checkpoint_id IS NOT NULL ORDER BY 1
"""


def check_pipelines(conn: psycopg.Connection) -> Iterator[Finding]:
    from tidegauge.webapp.catalog import queries
    from tidegauge.webapp.catalog.verdicts import verdict

    for pipeline in queries.pipelines():
        found = verdict(pipeline)
        message = f": {pipeline.message}" if pipeline.message and found.is_problem else ""
        yield Finding(
            "pipelines", LEVELS.get(found.tone, OK),
            f"{pipeline.name}: {found.name}, batch {pipeline.committed_txid}, {found.reason}{message}",
            found.remedy if found.is_problem else "",
        )  # fmt: skip


def check_states(conn: psycopg.Connection) -> Iterator[Finding]:
    from tidegauge.webapp.catalog import queries

    states = queries.states()
    for state in states:
        if state.finding:
            yield Finding("states", ERROR, state.finding, "see docs/recovery.md")
        if state.warning:
            yield Finding("states", WARNING, state.warning, "see docs/recovery.md")
        if not state.fed:
            yield Finding(
                "states", WARNING, f"{state.name}: pipeline {state.pipeline!r} does not feed it any more",
                f"`tidegauge retire {state.name} --keep`, or declare it again",
            )  # fmt: skip
    keys, size = sum(state.keys_estimate for state in states), sum(state.bytes for state in states)
    yield Finding("states", OK, f"{len(states)} states with {keys} keys, {bytes_as_text(size)}")


def check_checkpoints(conn: psycopg.Connection) -> Iterator[Finding]:
    """Compare the checkpoints in the data folder with the ledger. A driver on another host has its own."""
    for name, bound, epoch, committed, host in conn.execute(BOUND).fetchall():
        folder = data_dir() / "checkpoints" / name
        restore = f"stop the driver, then `tidegauge pipelines restore-checkpoint {name}`"
        found, seen = checkpoint_id(folder), last_batch(folder, name)
        if found is None:
            if host == socket.gethostname():
                yield Finding(
                    "checkpoints", WARNING, f"{name}: there is no checkpoint in {str(folder)!r}, the default",
                    f"none if its driver runs with --checkpoint; otherwise {restore}",
                )  # fmt: skip
        elif found != bound:
            yield Finding("checkpoints", ERROR, f"{name}: {str(folder)!r} is not the one that fed its states", restore)
        elif seen is not None and seen.epoch == epoch and seen.txid > committed:
            yield Finding(
                "checkpoints", ERROR,
                f"{name}: the checkpoint has seen batch {seen.txid}, and the ledger is at {committed}: "
                "the database was restored", restore,
            )  # fmt: skip
        else:
            yield Finding("checkpoints", OK, f"{name}: {str(folder)!r} fits the ledger")


def check_declarations(conn: psycopg.Connection) -> Iterator[Finding]:
    """Compare the pipelines that this machine declares with the stored states, as their next start does."""
    if find_spec("pyspark") is None:
        yield Finding("declarations", OK, "not compared, because this machine has no Spark")
        return
    from tidegauge.pipelines.driver.discovery import Search, places
    from tidegauge.state_backends import Catalog

    search = Search(places())
    for failure in search.failures:
        yield Finding("declarations", ERROR, failure, "correct the module")
    for declared in search.declarations:
        try:
            pipeline = declared.pipeline()
            Catalog(conn).check_declarations(pipeline.name, pipeline.specs)
            yield Finding("declarations", OK, f"{declared.name}: the stored states fit {declared}")
        except (PipelineError, TidegaugeError) as error:
            yield Finding("declarations", ERROR, str(error), f"correct {declared}, or do as the message says")


def check_worker(conn: psycopg.Connection) -> Iterator[Finding]:
    from tidegauge.webapp.catalog import queries
    from tidegauge.webapp.notify.alerts.history import silent_since

    workers = [each for each in queries.members() if each.role == "worker" and each.healthy]
    if not workers:
        yield Finding("worker", WARNING, "no worker is alive, so nothing is maintained", "`tidegauge worker`")
    elif at := silent_since():
        yield Finding(
            "worker", ERROR, f"the schedule has not run since {at:%Y-%m-%d %H:%M:%S %Z}",
            "one worker must run without --no-schedule: `tidegauge worker`, or `tidegauge beat` beside the workers",
        )  # fmt: skip
    else:
        yield Finding("worker", OK, f"{len(workers)} alive")
