"""The first run: ways to start a first pipeline, which the overview shows while there is none.

The commands are run in the folder where this server was started, or with its DATABASE_URL. The code is the same as in
docs/quickstart.md; a test compares the two.
"""

from dataclasses import dataclass

CLICKS = """\
import os

from tidegauge import Count, KafkaTopics, Pipeline, StateSpec, Stream, tumbling

CLICKED = StateSpec(
    "clicked",
    key={"page": "text", "minute": "timestamptz"},
    measures={"clicks": Count()},
    changelog=True,
)


def clicks() -> Pipeline:
    \"\"\"Clicks per page and minute, from the topic `clicks`.\"\"\"
    servers = os.environ.get("KAFKA_SERVERS", "localhost:9092")
    events = Stream.read(KafkaTopics(servers, "clicks", schema="page string NOT NULL, at timestamp NOT NULL"))
    per_minute = events.group_by("page", minute=tumbling("at", "1 minute"))
    return Pipeline("clicks", [per_minute.persistent_aggregate(CLICKED)])
"""
STOCK = """\
from tidegauge import Pipeline, PostgresChanges, RowCount, StateSpec, Stream, Sum

STOCK = StateSpec(
    "stock",
    key={"shelf": "text"},
    measures={"products": RowCount(), "pieces": Sum("pieces", type="bigint")},
)


def stock() -> Pipeline:
    \"\"\"Products and pieces per shelf, as the table `products` has them now.\"\"\"
    rows = Stream.read(PostgresChanges("public.products", old_rows="full")).retract()
    return Pipeline("stock", [rows.group_by("shelf").persistent_aggregate(STOCK)])
"""


@dataclass(frozen=True)
class Way:
    """name: its id. command: to run in a shell. file, code: the file to write before; empty if none is needed."""

    name: str
    title: str
    about: str
    command: str
    file: str = ""
    code: str = ""


def ways() -> list[Way]:
    return [
        Way(
            "demo",
            "Demo data",
            "Two pipelines stream a year of flights into six states. The demo serves its own dashboard on port 8001; "
            "the pipelines appear here, too. An installed package needs the extra `demo`.",
            "tidegauge demo --port 8001",
        ),
        Way(
            "folder",
            "Your own folder",
            "Counts the words of text files. Move more files into the folder while it runs.",
            "mkdir -p notes && echo 'to be or not to be' > notes/1.txt\ntidegauge run word_count --input notes",
        ),
        Way(
            "kafka",
            "Kafka",
            'Counts JSON messages from the topic `clicks`, such as {"page": "/", "at": "2026-01-31T10:00:00Z"}.',
            "KAFKA_SERVERS=localhost:9092 tidegauge run clicks:clicks",
            "clicks.py",
            CLICKS,
        ),
        Way(
            "table",
            "A table",
            "Follows every change to `public.products` in the database of DATABASE_URL. The table needs the columns "
            "product, shelf and pieces, and REPLICA IDENTITY FULL; its server needs `wal_level = logical`.",
            "tidegauge run stock:stock",
            "stock.py",
            STOCK,
        ),
    ]
