"""On a terminal progress is a table, and nothing is written beside it."""

import io
import os
import pty
import re
import subprocess
import sys
from contextlib import suppress

import pytest
from django.db import Error, connection
from rich.console import Console

from tests.webapp.committed_flights import committed_flights, no_database
from tidegauge.pipelines.embedded.data_dir import REPOSITORY
from tidegauge.webapp.commands.management.progress import Progress

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def shown(progress: Progress) -> str:
    out = io.StringIO()
    Console(file=out, width=160).print(progress.table())
    return out.getvalue()


def test_the_table_has_batch_rate_lag_and_states(filled):
    heading, pipeline, states, *rows = shown(Progress(["flights"])).splitlines()

    assert heading.split() == ["pipeline", "status", "batch", "events/s", "pending", "lag"]
    assert re.fullmatch(r"flights +\w[\w ]* +2 +[\d,]+ +\S.* +\S.*", pipeline)
    assert states.split() == ["state", "pipeline", "keys", "guarantee"]
    assert ["totals", "flights"] in [row.split()[:2] for row in rows]


def test_pipelines_that_were_not_asked_for_are_left_out(filled):
    assert shown(Progress(["orders"])) == "starting Spark ..\n"


def test_the_line_says_the_same_of_the_pipelines(filled):
    assert re.fullmatch(r"flights .+, batch 2, [\d,]+ events/s, .+ pending", Progress(["flights"]).line())


def test_while_the_database_does_not_answer_it_is_as_it_was_last(transactional_db):
    with committed_flights() as pipeline:
        progress = Progress(["flights"])
        line, table = progress.line(), shown(progress)

        with connection.cursor() as cursor, suppress(Error):
            cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        assert progress.line() == line
        with no_database():
            assert (progress.line(), shown(progress)) == (line, table)
        pipeline.commit({("JFK", "C01"): 1})
        assert ", batch 3, " in progress.line()


@pytest.mark.spark
def test_on_a_terminal_there_is_the_table_and_no_line_of_the_log_but_warnings(project):
    ours, theirs = pty.openpty()

    process = subprocess.Popen(
        [sys.executable, str(REPOSITORY / "manage.py"), "run_pipeline", "orders", "--once"],
        cwd=project.folder,
        env=project.environ() | {"LOG_FORMAT": "", "TERM": "xterm", "COLUMNS": "160"},
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    said = ESCAPES.sub("", read_all(ours))

    assert process.wait() == 0, said
    assert not re.search(r"committed \(|WARN| info ", said)
    assert "warning  tidegauge.pipelines.driver.session: " in said  # the servers of tests are not durable
    rows = [line.split() for line in said.splitlines()]
    assert ["orders", "finished", "2"] in [row[:3] for row in rows]
    assert ["ordered", "orders", "2"] in [row[:3] for row in rows]


def read_all(descriptor: int) -> str:
    """Read a terminal until its last writer has ended, which is an error by the rules of terminals."""
    text = b""
    try:
        while part := os.read(descriptor, 65536):
            text += part
    except OSError:
        pass
    return text.decode()
