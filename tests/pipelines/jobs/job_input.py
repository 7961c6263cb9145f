"""Helpers for tests of jobs: files that land in several folders, replays with other tuples, failing tasks."""

import json
import os
from contextlib import contextmanager

from tests.pipelines.conftest import FIRST_LANDING


def land(workspace, path, *lines):
    """Move a file of JSON lines into a folder of the input; each file is newer than the one before."""
    target = workspace.input / path
    target.parent.mkdir(exist_ok=True)
    staged = workspace.input.parent / target.name
    staged.write_text("".join(json.dumps(line) + "\n" for line in lines))
    at = FIRST_LANDING + sum(found.is_file() for found in workspace.input.rglob("*"))
    os.utime(staged, (at, at))
    return staged.replace(target)


def opaque(pipeline):
    """Return the pipeline with sources whose replays may bring other tuples, like files that are rewritten."""
    for source in pipeline.sources:
        source.spout = "opaque"
    return pipeline


@contextmanager
def refusing(conn, state):
    """Make every write to a state fail within the block, and with it the batch."""
    conn.execute(
        "CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'failed by the test'; END $$"
    )
    conn.execute(f"CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON tidemark_state.{state} EXECUTE FUNCTION refuse()")
    try:
        yield
    finally:
        conn.execute("DROP FUNCTION public.refuse() CASCADE")
