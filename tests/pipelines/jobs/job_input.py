"""What befalls a job: files that land in folders of their own, replays that bring other tuples, tasks that fail."""

import json
import os
from contextlib import contextmanager

from tests.pipelines.conftest import FIRST_LANDING


def land(workspace, path, *lines):
    """Put a file of JSON lines into a folder of the input, at once and whole; files are younger one by one."""
    target = workspace.input / path
    target.parent.mkdir(exist_ok=True)
    beside = workspace.input.parent / target.name
    beside.write_text("".join(json.dumps(line) + "\n" for line in lines))
    at = FIRST_LANDING + sum(found.is_file() for found in workspace.input.rglob("*"))
    os.utime(beside, (at, at))
    return beside.replace(target)


def opaque(pipeline):
    """Return the pipeline over sources whose replays may bring other tuples, as files that somebody rewrites do."""
    for source in pipeline.sources:
        source.spout = "opaque"
    return pipeline


@contextmanager
def refusing(conn, state):
    """Have the database refuse every write to a state meanwhile, which ends the attempt that tries."""
    conn.execute(
        "CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'struck by the test'; END $$"
    )
    conn.execute(f"CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON tidemark_state.{state} EXECUTE FUNCTION refuse()")
    try:
        yield
    finally:
        conn.execute("DROP FUNCTION public.refuse() CASCADE")
