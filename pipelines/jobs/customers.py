"""Customers: a table-table join. Two streams of changes become one row per user, in any order of arrival."""

from pathlib import Path

from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.sources.files.formats import JsonFiles
from tidegauge.state_backends import Latest, StateSpec

PROFILE = "user string NOT NULL, name string, city string, changed_at timestamp NOT NULL"
SETTING = "user string NOT NULL, language string, newsletter boolean, set_at timestamp NOT NULL"

# Each side has its own time column, so that it changes only its own fields.
CUSTOMERS = StateSpec(
    "customers",
    key={"user": "text"},
    measures={
        "profile": Latest("name", "city", by="changed_at"),
        "settings": Latest("language", newsletter="boolean", by="set_at"),
    },
    changelog=True,
)


def customers(folder: Path, files_per_batch: int = 100) -> Pipeline:
    """One row per user from changed profiles and changed settings, from JSON lines in `profiles` and `settings`.

    Every field holds its newest value by the time of its own side. A null changes nothing, so a change may carry only
    some of the fields, and changes may arrive late or in any order. A user known to only one side has nulls for the
    other.
    """
    profiles = Stream.read(JsonFiles(folder / "profiles", schema=PROFILE, files_per_batch=files_per_batch))
    settings = Stream.read(JsonFiles(folder / "settings", schema=SETTING, files_per_batch=files_per_batch))
    return Pipeline("customers", [profiles.merge(settings).group_by("user").persistent_aggregate(CUSTOMERS)])
