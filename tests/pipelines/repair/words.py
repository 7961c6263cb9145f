"""A pipeline that counts words, in two declarations, and its reprocess."""

import threading

from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.repair.reprocess import Reprocess
from tidegauge.pipelines.sources.files.formats import TextFiles
from tidegauge.state_backends import Count, StateSpec, Sum

WORDS = StateSpec("words", key={"word": "text"}, measures={"count": Count()}, changelog=True)

# Another meaning of the state, which no migration can bridge.
LETTERS = StateSpec("words", key={"word": "text"}, measures={"letters": Sum("letters", type="bigint")}, changelog=True)


def words(folder, spec=WORDS):
    lines = Stream.read(TextFiles(folder, files_per_batch=1))
    split = lines.each(word="explode(split(line, ' '))").each(letters="length(word)")
    return Pipeline("word_count", [split.group_by("word").persistent_aggregate(spec)])


def reprocess(workspace, pipeline, on_batch=lambda batch: None, stopping=None, **options):
    return Reprocess(
        pipeline,
        workspace.spark,
        workspace.dsn,
        workspace.checkpoint,
        on_batch,
        stopping or threading.Event(),
        **options,
    )
