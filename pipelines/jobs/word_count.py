"""Word count: the smallest example."""

from pathlib import Path

from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.sources.files.formats import TextFiles
from tidegauge.state_backends import Count, StateSpec

WORDS = StateSpec("words", key={"word": "text"}, measures={"count": Count()})


def word_count(folder: Path, files_per_batch: int = 100) -> Pipeline:
    """How often each word occurs, from text files that land in a folder."""
    lines = Stream.read(TextFiles(folder, files_per_batch=files_per_batch))
    words = lines.each(word="explode(split(lower(line), '[^a-z0-9]+'))").where("word <> ''")
    return Pipeline("word_count", [words.group_by("word").persistent_aggregate(WORDS)])
