"""The Python of docs/streams.md and docs/aggregators.md, run as it stands there with what the pages take as given."""

from pathlib import Path
from unittest.mock import patch

from datasketches import update_theta_sketch

import tidegauge
from tests.docs.blocks import program
from tidegauge import Count, JsonFiles, Last, StateSpec, Stream, TextFiles
from tidegauge.pipelines.jobs.word_count import WORDS
from tidegauge.state_backends.aggregators import AGGREGATORS

EVERY_NAME = {name: getattr(tidegauge, name) for name in tidegauge.__all__}


def run(page, given):
    """Run the program of a page and return its names."""
    names = EVERY_NAME | given
    exec(compile(program(page), f"docs/{page}", "exec"), names)  # noqa: S102
    return names


def split(line):
    for word in line.split():
        yield (word,)


def counted(name, *key):
    return StateSpec(name, key=dict.fromkeys(key, "text"), measures={"count": Count()})


def test_the_streams_of_the_page_can_be_declared_and_its_query_answers(filled):
    lines = Stream.read(TextFiles("texts"))
    visits = Stream.read(JsonFiles("visits", schema="user string, place string, page string, at timestamp"))
    answers = []

    def execute(*arguments):
        answers.append(tidegauge.execute(*arguments))

    given = {
        "Path": Path, "folder": "flights", "spark": filled.spark, "dsn": filled.dsn, "split": split, "execute": execute,
        "BY_CARRIER": counted("by_carrier", "origin", "carrier"), "ORDERED": counted("ordered", "article"),
        "BY_REGION": counted("by_region", "region"), "CLICKED": counted("clicked", "page"),
        "WORDS": WORDS, "words": lines.each(split, ["line"], word="string"),
        "visits": visits, "views": visits, "clicks": visits,
        "PROFILES": StateSpec("profiles", {"user": "text"}, {"region": Last("region", by="at", type="text")}),
    }  # fmt: skip

    run("streams.md", given)

    assert answers == [[{"sum": 1}]]


def stored(*planes):
    sketch = update_theta_sketch(12)
    for plane in planes:
        sketch.update(plane)
    return {"": float(len(planes)), "sketch": sketch.compact().serialize(), "type": "theta/text/12"}


def test_the_aggregators_of_the_page_can_be_declared():
    with patch.dict(AGGREGATORS):  # the page adds one
        found = run("aggregators.md", {"jfk": stored("N1", "N2"), "lga": stored("N2", "N3")})

    assert found["fleet"].finish(found["both"]) == 1
    assert found["PROFILES"].measures["profile"]
