"""A driver program that counts words in a state in Redis, spread over buckets; run with the folders of input and
checkpoint.
"""

import os
import sys
from dataclasses import replace
from pathlib import Path

from tidegauge import Driver, Pipeline, RunOptions, Stream, TextFiles, start_session
from tidegauge.pipelines.jobs.word_count import WORDS

SPREAD = replace(WORDS, name="spread_words", backend="redis", partitions=24)


def main() -> None:
    spark = start_session("spread")
    lines = Stream.read(TextFiles(Path(sys.argv[1]), files_per_batch=1))
    words = lines.each(word="explode(split(line, ' '))").group_by("word").persistent_aggregate(SPREAD)
    options = RunOptions(Path(sys.argv[2]))
    Driver(Pipeline("spread_words", [words]), spark, os.environ["DATABASE_URL"], options).run()


if __name__ == "__main__":
    main()
