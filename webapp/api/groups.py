"""Groups: the entries of a state folded by key columns."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import psycopg
from django.conf import settings

from tidegauge.state_backends import StateSpec
from tidegauge.webapp.accounts.permissions import KeyScope
from tidegauge.webapp.api.entries import EntriesQuery
from tidegauge.webapp.api.lookups import batch_document, read
from tidegauge.webapp.catalog import readers

# A sketch of 4 KB takes ten times as long to send and to fold as a number.
SLOWER = 10


def groups(name: str, asked: Mapping[str, Any], scope: KeyScope) -> dict[str, Any]:
    """Return the groups that a client asks for. asked: what `GroupsParameters` read.

    Raises UnknownStateError, KeyShapeError, FilterError, OutsideError, SpecError, RangeTooLargeError,
    NotCommittedError, OutOfReachError.
    """
    return read(lambda conn: _groups(conn, name, asked, scope))


def most_folded(spec: StateSpec, measures: Sequence[str] | None) -> int:
    """Return how many keys may be folded. measures: None means all."""
    folded = [spec.measures[name] for name in measures or spec.measures if name in spec.measures]
    in_sql = all(aggregator.fold_sql for aggregator in folded)
    most: int = settings.TIDEGAUGE_GROUP_MAX_KEYS
    return most if in_sql else most // SLOWER


def _groups(conn: psycopg.Connection, name: str, asked: Mapping[str, Any], scope: KeyScope) -> dict[str, Any]:
    reader = readers.reader(conn, name)
    query = EntriesQuery.of(asked).with_batch(conn, name)
    bounds = query.bounds(reader.spec, scope)
    by = asked.get("by") or []
    snapshot = reader.groups(
        by,
        **bounds,
        order_by=query.order_by,
        descending=query.descending,
        limit=asked["limit"],
        most_folded=most_folded(reader.spec, query.measures),
        measures=query.measures,
        at_txid=query.batch,
    )
    return {
        "state": name,
        **batch_document(snapshot),
        "isolation": reader.isolation,
        "by": [column for column in reader.spec.key if column in by],
        "complete": snapshot.complete,
        "groups": orjson.Fragment(snapshot.results),
    }
