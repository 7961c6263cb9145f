"""The first run: ways to a first pipeline, with what to type, for an overview without any.

The commands are typed in the folder in which this server was started, or with its DATABASE_URL. The code is that of
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
    """name: its id. command: what to type in a shell. file, code: what to write before; empty if nothing."""

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
            "Two pipelines stream a year of flights into six states. It serves a dashboard of its own at port 8001; "
            "the pipelines appear here, too. An installed package needs its extra `demo`.",
            "tidegauge demo --port 8001",
        ),
        Way(
            "folder",
            "A folder of yours",
            "Counts the words of text files. Move more files into the folder while it runs.",
            "mkdir -p notes && echo 'to be or not to be' > notes/1.txt\n"
            "tidegauge run_pipeline word_count --input notes",
        ),
        Way(
            "kafka",
            "Kafka",
            'Counts JSON messages of the topic `clicks`, such as {"page": "/", "at": "2026-01-31T10:00:00Z"}.',
            "KAFKA_SERVERS=localhost:9092 tidegauge run_pipeline clicks:clicks",
            "clicks.py",
            CLICKS,
        ),
        Way(
            "table",
            "A table",
            "Follows each change of `public.products` in the database of DATABASE_URL; the table needs the columns "
            "product, shelf and pieces, and REPLICA IDENTITY FULL, its server `wal_level = logical`.",
            "tidegauge run_pipeline stock:stock",
            "stock.py",
            STOCK,
        ),
    ]
