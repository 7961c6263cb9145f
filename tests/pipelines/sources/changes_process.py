"""A pipeline over a table's changes, run in a process of its own that tests kill."""

import os
import sys
from pathlib import Path

from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.driver.driver import Driver, RunOptions
from tidegauge.pipelines.sources.postgres.changes import PostgresChanges
from tidegauge.pipelines.spark.session import start_session
from tidegauge.state_backends import Count, StateSpec, Sum

NET = StateSpec("net", key={"carrier": "text"}, measures={"rows": Count(), "miles": Sum("miles", "double precision")})


def net(url: str) -> Pipeline:
    """All inserted rows and their miles, per carrier, in small batches."""
    source = PostgresChanges("flown", url=url, max_changes_per_batch=40)
    return Pipeline("net", [Stream.read(source).group_by("carrier").persistent_aggregate(NET)])


if __name__ == "__main__":
    url = os.environ["DATABASE_URL"]
    Driver(net(url), start_session("victim", master="local[2]"), url, RunOptions(Path(sys.argv[1]))).run()
