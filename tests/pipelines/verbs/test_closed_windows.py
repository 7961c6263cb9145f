"""closed_windows: each window once, with what a plain model holds as it closes; later events are dead letters."""

import json
import os
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random

import pytest
import redis

from tests.contracts.backends import emptied
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.declare.windows import calendar, sliding, tumbling
from tidegauge.pipelines.errors import PipelineError
from tidegauge.pipelines.sources.files.formats import JsonFiles
from tidegauge.state_backends import Count, StateSpec, Sum

START = datetime(2024, 3, 30, 22, tzinfo=UTC)
VIEWS = StateSpec("views", key={"page": "text", "start": "timestamptz"}, measures={"n": Count()})
CLOSED = StateSpec(
    "closed",
    key={"page": "text", "start": "timestamptz"},
    measures={"n": Sum("n", type="bigint"), "times": Count()},
)
DELAY, LATENESS = timedelta(minutes=10), timedelta(minutes=15)


def events(folder, **watermark):
    read = Stream.read(JsonFiles(folder, schema="page string, at timestamp", files_per_batch=1))
    return read.with_watermark("at", "10 minutes", **watermark)


def windowed(folder, window, backend="postgres"):
    groups = events(folder).group_by("page", start=window)
    views = groups.persistent_aggregate(replace(VIEWS, backend=backend), allowed_lateness=LATENESS)
    closed = views.closed_windows().group_by("page", "start").persistent_aggregate(CLOSED)
    pipeline = Pipeline("closing", [closed])
    pipeline.sources[0].spout = "opaque"  # so that the committed batch is run again
    return pipeline


def drawn(random, batches):
    """Batches of events around a clock that goes on by up to an hour per batch; some come two hours late."""
    clock, all_events = START, []
    for _ in range(batches):
        clock += timedelta(minutes=random.randint(0, 60))
        ages = [random.randint(0, 150) for _ in range(random.randint(1, 8))]
        all_events.append([(random.choice("ab"), clock - timedelta(minutes=age)) for age in ages])
    return all_events


class Model:
    """What the states should hold: windows that are open, and those that closed."""

    def __init__(self, starts, window):
        self.starts, self.window = starts, window
        self.views, self.closed, self.late = Counter(), {}, 0
        self.watermark = None

    def run(self, batch):
        for page, at in batch:
            for start in self.starts(at):
                if self.has_closed(start):
                    self.late += 1
                else:
                    self.views[page, start] += 1
        latest = max(at for _, at in batch) - DELAY
        self.watermark = max(self.watermark or latest, latest)
        for (page, start), n in self.views.items():
            if self.has_closed(start):
                self.closed.setdefault((page, start), n)

    def has_closed(self, start):
        return self.watermark is not None and self.window.end(start) + LATENESS <= self.watermark


def starts_of_sliding(at):
    """The starts of the windows of an hour every half an hour."""
    last = START + (at - START) // timedelta(minutes=30) * timedelta(minutes=30)
    return [last - timedelta(minutes=30), last]


DAY = calendar("at", "day", "Europe/Berlin")
WINDOWS = {
    "sliding": (sliding("at", "1 hour", "30 minutes"), starts_of_sliding),
    "day": (DAY, lambda at: [DAY.open_from(at)]),
}


@pytest.mark.spark
@pytest.mark.parametrize(
    ("kind", "backend"),
    [pytest.param("sliding", "postgres", marks=pytest.mark.core), ("day", "postgres"), ("sliding", "redis")],
)
def test_windows_close_once_as_those_of_a_model_also_after_replays(workspace, kind, backend):
    window, starts = WINDOWS[kind]
    if backend == "redis":
        clear_redis()
    model, random = Model(starts, window), Random(kind)
    for number, batch in enumerate(drawn(random, 4)):
        lines = [{"page": page, "at": at.isoformat()} for page, at in batch]
        workspace.land(f"{number}.json", *lines)
        model.run(batch)

    workspace.run(windowed(workspace.input, window, backend))
    workspace.forget_last_commit()
    workspace.run(windowed(workspace.input, window, backend))

    found = {
        (page, datetime.fromisoformat(start)): (value["n"], value["times"])
        for (page, start), value in workspace.values("closed").items()
    }
    assert found == {key: (n, 1) for key, n in model.closed.items()}
    assert model.closed
    assert model.late
    letters = workspace.rows("SELECT line, reason FROM tidegauge.dead_letter")
    assert len(letters) == model.late
    for line, reason in letters:
        assert json.loads(line).keys() == {"page", "at", "_window"}
        assert reason == "late: its window has closed, 0:15:00 after its end"


def clear_redis():
    with redis.Redis.from_url(os.environ["REDIS_URL"]) as client:
        emptied(client, replace(VIEWS, backend="redis"))


def test_windows_that_cannot_close_are_refused_where_they_are_declared(tmp_path):
    plain = Stream.read(JsonFiles(tmp_path, schema="page string, at timestamp"))

    with pytest.raises(PipelineError, match="state 'views': allowed_lateness closes windows, but 0 of its keys are"):
        events(tmp_path).group_by("page", start="at").persistent_aggregate(VIEWS, allowed_lateness="1 hour")
    groups = plain.group_by("page", start=tumbling("at", "1 hour"))
    with pytest.raises(PipelineError, match=r"state 'views': closed_windows\(\) needs windows that close; give"):
        groups.persistent_aggregate(VIEWS).closed_windows()
    with pytest.raises(PipelineError, match="the windows of state 'views' never close, because no stream has a"):
        Pipeline("closing", [groups.persistent_aggregate(VIEWS, allowed_lateness="0 seconds")])
