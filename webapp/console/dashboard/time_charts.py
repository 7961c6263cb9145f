"""Charts with a time axis: which time range a page shows, and which lines its charts have.

The page names the series, and charts.js reads them from the API and draws them. The range is in the page's address:
`range=24h`, or `from` and `to`. Without one, it is the shortest that shows recent batches of the pipeline.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from django.utils import timezone

from tidegauge.state_backends import StateSpec
from tidegauge.state_backends.aggregators import Count, DistinctCount, DistinctSet, RowCount, Sum
from tidegauge.webapp.catalog.batches import BatchSummary, oldest_commit
from tidegauge.webapp.catalog.pipeline_status import PipelineStatus
from tidegauge.webapp.catalog.series import PHASES

# Name to seconds.
RANGES = {"15m": 900, "1h": 3_600, "24h": 86_400, "7d": 604_800}
LABELS = {"15m": "15 m", "1h": "1 h", "24h": "24 h", "7d": "7 d"}
DEFAULT = "1h"

# Lines of one chart, because there are only as many colours.
MOST_LINES = 7


@dataclass(frozen=True)
class ShownRange:
    """name: one of RANGES, which end now; empty if since and until are given. is_default: the address has no range."""

    name: str
    since: datetime | None = None
    until: datetime | None = None
    is_default: bool = False

    @classmethod
    def parse(cls, asked: Mapping[str, str]) -> "ShownRange":
        """Return the range of an address; the default one if it has none, or an invalid one."""
        since, until = moment_of(asked.get("from", "")), moment_of(asked.get("to", ""))
        if since and until and since < until:
            return cls("", since, until)
        name = asked.get("range", "")
        return cls(name) if name in RANGES else cls(DEFAULT, is_default=True)

    @classmethod
    def of_pipeline(cls, asked: Mapping[str, str], pipeline: PipelineStatus) -> "ShownRange":
        """Return the range of an address; if it has none, the usual one of the pipeline."""
        shown = cls.parse(asked)
        return replace(shown, name=usual_range(pipeline)) if shown.is_default else shown

    @classmethod
    def of_batches(cls, batches: Sequence[BatchSummary]) -> "ShownRange | None":
        """Return the range in which batches, given newest first, were committed; None for fewer than two."""
        times = [batch.committed_at for batch in batches if batch.committed_at is not None]
        # A millisecond more, because a range does not include its end.
        return cls("", times[-1], times[0] + timedelta(milliseconds=1)) if len(times) > 1 else None

    @property
    def seconds(self) -> int:
        """The length of a range that ends now; 0 for any other."""
        return RANGES.get(self.name, 0)

    @property
    def query(self) -> dict[str, str]:
        """The parameters of an address that shows this range."""
        if self.since and self.until:
            return {"from": self.since.isoformat(), "to": self.until.isoformat()}
        return {} if self.is_default else {"range": self.name}

    @property
    def asked(self) -> dict[str, str]:
        """The API's parameters for this range."""
        if self.since and self.until:
            return {"from": self.since.isoformat(), "to": self.until.isoformat()}
        return {"last": str(self.seconds)}

    @property
    def choices(self) -> list[tuple[str, str]]:
        return list(LABELS.items())


def usual_range(pipeline: PipelineStatus) -> str:
    """Return the shortest range with all batches of a pipeline, or with its last batch and at least an hour."""
    if pipeline.committed_at is None:
        return DEFAULT
    now = timezone.now()
    idle_seconds = (now - pipeline.committed_at).total_seconds()
    age_seconds = (now - (oldest_commit(pipeline) or pipeline.committed_at)).total_seconds()
    least = min(age_seconds, max(idle_seconds, RANGES[DEFAULT]))
    return next((name for name, seconds in RANGES.items() if seconds >= least), "7d")


@dataclass(frozen=True)
class Chart:
    """name: part of its id. unit: `s`, which is shown as a duration, or any other. lines: (series, label).

    form: line, steps for values that hold until the next one, or stack for parts that add up. from_zero: the axis
    begins at 0, because lengths are compared; else it shows the values that there are. of_whole_batches: about whole
    batches, so not shown to a restricted user. of_event_time: only shown if the pipeline has event time. limit: drawn
    as a line; None for none.
    """

    name: str
    title: str
    unit: str
    lines: Sequence[tuple[str, str]]
    form: str = "line"
    from_zero: bool = True
    of_whole_batches: bool = False
    of_event_time: bool = False
    limit: float | None = None


DURATION = Chart("duration", "Longest batch", "s", [("longest_seconds", "Longest"), ("seconds", "Average")])
LAG = Chart("lag", "Lag", "s", [("lag_seconds", "Oldest input not counted")])
PHASES_OF_BATCHES = Chart(
    "phases",
    "Batch duration",
    "s",
    # The longest one first, which has the first colour, and is on top.
    [(name, name) for name in sorted(PHASES, key=lambda name: name != "addBatch")],
    form="stack",
    of_whole_batches=True,
)
# Those of the first screen, and the others.
PIPELINE_CHARTS = (
    LAG,
    Chart(
        "rate",
        "Rows per second",
        "rows/s",
        [("rows_per_second", "Counted"), ("arrived_per_second", "Arrived")],
        of_whole_batches=True,
    ),
    PHASES_OF_BATCHES,
)
MORE_CHARTS = (
    Chart("pending", "Pending input", "", [("pending", "Pending")]),
    Chart("freshness", "Freshness", "s", [("freshness_seconds", "Maximum age of the values served")]),
    Chart("event-age", "Newest event", "s", [("event_age_seconds", "Age when committed")], of_event_time=True),
    DURATION,
    Chart(
        "rejected",
        "Rejected and late rows",
        "rows",
        [("dead_letters", "Dead letters"), ("late", "Late"), ("dropped", "Dropped")],
    ),
)


def pipeline_charts(*, is_restricted: bool, lag_limit: float | None) -> list[Chart]:
    """Return the charts of the first screen, which have one time axis."""
    shown = [chart for chart in PIPELINE_CHARTS if not (is_restricted and chart.of_whole_batches)]
    return [replace(chart, limit=lag_limit) if chart is LAG else chart for chart in shown]


def more_charts(*, has_event_time: bool, pending_unit: str) -> list[Chart]:
    return [
        replace(chart, unit=pending_unit) if chart.name == "pending" else chart
        for chart in MORE_CHARTS
        if has_event_time or not chart.of_event_time
    ]


def value_chart(spec: StateSpec, measure: str) -> Chart:
    """Return the chart of a key's measure, whose values hold until the next version."""
    return Chart("value", measure, "", [(measure, measure)], form="steps", from_zero=adds_up(spec, measure))


def adds_up(spec: StateSpec, measure: str) -> bool:
    """Return whether a measure is a sum or a number of things, which are compared by their lengths from 0."""
    return isinstance(spec.measures[measure], Count | RowCount | Sum | DistinctCount | DistinctSet)


def moment_of(text: str) -> datetime | None:
    """Return the time that an address names, in UTC if it has no offset; None for any other text."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if not 1970 <= moment.year <= 9000:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
