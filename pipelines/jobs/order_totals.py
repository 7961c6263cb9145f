"""Order totals: aggregates over a table whose rows change, equal to a GROUP BY of it after every batch."""

from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.sources.postgres.changes import PostgresChanges
from tidegauge.state_backends import Mean, RetractableMax, RetractableMin, RowCount, StateSpec, Sum

ORDER = "id long, status string, amount decimal(12,2)"

BY_STATUS = StateSpec(
    "orders_by_status",
    key={"status": "text"},
    measures={
        "orders": RowCount(),
        "revenue": Sum("amount", type="numeric(38, 2)"),
        "mean": Mean("amount", type="numeric(38, 2)"),
    },
)
# A state of its own, because extremes are folded in Python and totals by the server.
EXTREMES = StateSpec(
    "order_extremes",
    key={"status": "text"},
    measures={
        "orders": RowCount(),
        "smallest": RetractableMin("amount", type="numeric(38, 2)"),
        "largest": RetractableMax("amount", type="numeric(38, 2)"),
    },
)


def order_totals(table: str = "public.orders") -> Pipeline:
    """Orders, revenue and extremes per status, of a table in the database with REPLICA IDENTITY FULL."""
    orders = Stream.read(PostgresChanges(table, schema=ORDER, old_rows="full")).retract().group_by("status")
    return Pipeline("order_totals", [orders.persistent_aggregate(BY_STATUS), orders.persistent_aggregate(EXTREMES)])
