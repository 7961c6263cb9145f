"""What a tile of a board shows: the answer to the question of a saved view, in a form that fits a small place.

A question about keys with a time becomes a chart, one that is ordered by a number bars, any other one a table.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from django.http import QueryDict

from tidegauge.state_backends import Snapshot, StateSpec
from tidegauge.state_backends.reader.reader import CommittedBatch, Reader
from tidegauge.webapp.accounts.permissions import KeyScope
from tidegauge.webapp.catalog.pipeline_status import PipelineStatus
from tidegauge.webapp.console.boards.models import Tile
from tidegauge.webapp.console.dashboard.boards.drawing import Drawing, drawing
from tidegauge.webapp.console.dashboard.explorer import by_time
from tidegauge.webapp.console.dashboard.explorer.comparison import Compared, Comparison, compared
from tidegauge.webapp.console.dashboard.explorer.moment import batch_of
from tidegauge.webapp.console.dashboard.explorer.question import Question
from tidegauge.webapp.console.dashboard.explorer.table import Table, entries_table, groups, groups_table
from tidegauge.webapp.console.dashboard.explorer.then_and_now import Sides, compared_table, sides, steadily
from tidegauge.webapp.console.dashboard.pasted import pasted_prefix
from tidegauge.webapp.console.saved_views.models import Page

TILE_ROWS = 10


@dataclass(frozen=True)
class Content:
    """One of drawing, table and compared; none of them if there are no keys. batch: the one that was read.

    columns: of the keys in the table, name to SQL type.
    """

    batch: CommittedBatch
    drawing: Drawing | None = None
    table: Table | None = None
    compared: Compared | None = None
    columns: Mapping[str, str] | None = None


def names_a_batch(tile: Tile) -> bool:
    """Return whether the view asks about a batch of its own, so that it is not read at that of the other tiles."""
    return "as_of" in tile.view.question


def read_tile(
    tile: Tile, reader: Reader, scope: KeyScope, pipeline: PipelineStatus, at_txid: int | None = None
) -> Content:
    """at_txid: the batch to read if the view names none; None for the latest.

    Raises what the pages of the explorer show as the reason why they have no answer.
    """
    asked = _query(tile.view.question)
    if tile.view.page == Page.COMPARE:
        return _comparison(reader, Comparison.parse(asked, reader.spec), scope, pipeline, at_txid)
    question = replace(Question.parse(asked, reader.spec), limit=TILE_ROWS)
    if at_txid is not None and not question.as_of:
        question = replace(question, as_of=str(at_txid))
    return steadily(reader.spec, lambda: _exploration(tile, reader, question, scope, pipeline))


def _query(stored: Mapping[str, Any]) -> QueryDict:
    """Return a stored question as the query of an address, which is checked like one."""
    query = QueryDict(mutable=True)
    for name, value in stored.items():
        query.setlist(name, [str(each) for each in (value if isinstance(value, list) else [value])])
    return query


def _exploration(tile: Tile, reader: Reader, question: Question, scope: KeyScope, pipeline: PipelineStatus) -> Content:
    prefix = scope.check_prefix(reader.spec, pasted_prefix(question.prefix, reader.spec))
    both = sides(reader, question, prefix, pipeline)
    wants_chart = tile.form == Tile.Form.CHART and both.then is None and by_time.time_part(reader.spec, question)
    if wants_chart and by_time.charts(reader.spec, question):
        return _chart(reader, question, prefix, both, pipeline)
    table = _table(reader, question, prefix, both)
    columns = {name: reader.spec.key[name] for name in question.group} or reader.spec.key
    return Content(_batch(table.txid, table.at), table=table, columns=columns)


def _table(reader: Reader, question: Question, prefix: Any, both: Sides) -> Table:
    if both.then is not None:
        return compared_table(reader, question, prefix, both)
    if question.group:
        return groups_table(reader.spec, question, groups(reader, question, prefix, *both.now, all_of_them=False))
    return entries_table(reader, question, prefix, *both.now)


def _chart(reader: Reader, question: Question, prefix: Any, both: Sides, pipeline: PipelineStatus) -> Content:
    values = by_time.split_values(reader, question, prefix, *both.now)
    first = by_time.charts(reader.spec, question, [*map(str, values), "other"] if values else [])[0]
    one = replace(question, measures=(_measure(reader.spec, question),))
    until = by_time.counted_until(pipeline, both.now[1])
    answer = by_time.series_by_time(reader, one, prefix, *both.now, until, values)
    return Content(_batch(answer["txid"]), drawing=drawing(first, answer))


def _measure(spec: StateSpec, question: Question) -> str:
    """Return the measure of the first chart, to read no others."""
    return next(column.measure for column in by_time.drawn_columns(spec, question))


def _comparison(
    reader: Reader, comparison: Comparison, scope: KeyScope, pipeline: PipelineStatus, at_txid: int | None
) -> Content:
    scope.check_keys(reader.spec, comparison.keys)
    now = batch_of(comparison.as_of, pipeline) if comparison.as_of else at_txid
    found = compared(reader, comparison, now, batch_of(comparison.than, pipeline))
    return Content(_of(found.now), compared=found, columns=reader.spec.key)


def _of(snapshot: Snapshot) -> CommittedBatch:
    return _batch(snapshot.txid, snapshot.batch_time)


def _batch(txid: int, at: Any = None) -> CommittedBatch:
    # Neither attempt nor epoch, because the answers of the explorer do not have them.
    return CommittedBatch(txid, 0, at, "")
