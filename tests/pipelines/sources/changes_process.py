"""A pipeline over a table's changes, run in a process of its own that tests kill."""

import os
import sys
from pathlib import Path

from pipelines.driver import Driver, RunOptions
from pipelines.pipeline import Pipeline
from pipelines.sources.postgres_changes import PostgresChanges
from pipelines.spark import start_session
from pipelines.stream import Stream
from state_backends import Count, StateSpec, Sum

NET = StateSpec("net", key={"carrier": "text"}, measures={"rows": Count(), "miles": Sum("miles", "double precision")})


def net(url: str) -> Pipeline:
    """All inserted rows and their miles, per carrier, in small batches."""
    source = PostgresChanges("flown", url=url, max_changes_per_batch=40)
    return Pipeline("net", [Stream.read(source).group_by("carrier").persistent_aggregate(NET)])


if __name__ == "__main__":
    url = os.environ["DATABASE_URL"]
    Driver(net(url), start_session("victim", master="local[2]"), url, RunOptions(Path(sys.argv[1]))).run()
