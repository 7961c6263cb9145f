"""The changes of a batch as rows of text: which of them belong to it, and what each says about the table's columns."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pipelines.errors import InputLostError, SourceSetupError
from pipelines.sources.pgoutput import UNCHANGED, Change, Relation, Transaction, Unchanged, Values, as_text
from pipelines.sources.postgres_table import Position, Table

# Values in the order of the wanted columns, then what happened, the LSN, and the commit time in microseconds.
Row = list[str | int | None]


@dataclass(frozen=True)
class Wanted:
    """Which changes are wanted. columns: of the table. truncates: whether a TRUNCATE is an error."""

    table: Table
    columns: tuple[str, ...]
    truncates: bool


def rows(changes: Iterable[Change], wanted: Wanted, start: Position, end: Position) -> Iterator[Row]:
    """Yield the rows of the changes between two positions, but for those that the copy had seen.

    An update of a key is a delete of the old one and an insert of the new.
    Raises InputLostError at a TRUNCATE, SourceSetupError where a value was not sent or a column is not there.
    """
    transaction, is_wanted, relation = None, False, None
    places: list[int] = []
    for change in changes:
        if change.transaction is not transaction:
            transaction = change.transaction
            is_wanted = _belongs(transaction, start, end)
        if not is_wanted or not _is_of(change.relation, wanted.table):
            continue
        if change.relation is not relation:
            relation = change.relation
            places = _places(relation, wanted, change.lsn)
        yield from _rows_of(change, places, wanted)


def _belongs(transaction: Transaction, start: Position, end: Position) -> bool:
    if not start.lsn <= transaction.commit_lsn < end.lsn:
        return False
    return start.seen is None or not start.seen.covers(transaction)


def _is_of(relation: Relation, table: Table) -> bool:
    return relation.name == table.name and relation.schema == table.schema


def _rows_of(change: Change, places: list[int], wanted: Wanted) -> Iterator[Row]:
    if change.kind == "truncate":
        if wanted.truncates:
            raise _truncated(change, wanted)
        return
    if change.kind == "delete":
        assert change.old is not None
        yield _row(change.old, "delete", change, places, wanted)
        return
    new = _completed(change)
    if change.old is not None and _key_moved(change, new, wanted.table):
        yield _row(change.old, "delete", change, places, wanted)
        yield _row(new, "insert", change, places, wanted)
    else:
        yield _row(new, change.kind, change, places, wanted)


def _row(values: Values, kind: str, change: Change, places: list[int], wanted: Wanted) -> Row:
    picked: Row = []
    for place, column in zip(places, wanted.columns, strict=True):
        value = values[place]
        if isinstance(value, Unchanged):
            raise _not_sent(column, change, wanted)
        picked.append(value)
    return [*picked, kind, change.lsn, change.transaction.at]


def _completed(change: Change) -> Values:
    """Return the new row, its values that were not sent taken from the old row as far as that goes."""
    assert change.new is not None
    if change.old is None or UNCHANGED not in change.new:
        return change.new
    there = range(len(change.old)) if change.old_is_whole else _places_of(change.relation.key, change.relation)
    pairs = enumerate(zip(change.old, change.new, strict=True))
    return [old if new is UNCHANGED and place in there else new for place, (old, new) in pairs]


def _key_moved(change: Change, new: Values, table: Table) -> bool:
    assert change.old is not None
    # A whole old row comes with every column marked as key; the primary key is what tells rows apart.
    key = _places_of(table.key if change.old_is_whole else change.relation.key, change.relation)
    return any(change.old[place] != new[place] for place in key)


def _places_of(names: Iterable[str], relation: Relation) -> list[int]:
    return [relation.columns.index(name) for name in names if name in relation.columns]


def _places(relation: Relation, wanted: Wanted, lsn: int) -> list[int]:
    missing = [name for name in wanted.columns if name not in relation.columns]
    if missing:
        raise SourceSetupError(
            f"table {str(wanted.table)!r}: the changes at LSN {as_text(lsn)} have no column {', '.join(missing)}: it "
            "was added later, or dropped; leave it out of the source's schema"
        )
    return [relation.columns.index(name) for name in wanted.columns]


def _truncated(change: Change, wanted: Wanted) -> InputLostError:
    return InputLostError(
        f"table {str(wanted.table)!r}: was truncated at LSN {as_text(change.lsn)}, and nothing tells which rows went; "
        "start anew from the table as it is (PostgresChanges.drop(), then --reprocess), or keep what was counted by "
        "ignore_truncate=True"
    )


def _not_sent(column: str, change: Change, wanted: Wanted) -> SourceSetupError:
    return SourceSetupError(
        f"table {str(wanted.table)!r}: the {change.kind} at LSN {as_text(change.lsn)} left {column!r} as it was, and "
        "PostgreSQL does not send large values that did not change; leave the column out of the source's schema, or "
        "ALTER TABLE .. REPLICA IDENTITY FULL and start anew (PostgresChanges.drop(), then --reprocess)"
    )
