"""Former names: states and pipelines that were retired or renamed, and what became of each.

If a name were only deleted, it would look like a mistyped one, and an old release that still declares it would create
it again and count from the middle of its input. So the name stays taken, and reports what became of it, until it is
freed with `--forget`.
"""

import json
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

import psycopg

from tidegauge.state_backends.errors import (
    FormerPipelineError,
    FormerStateError,
    RetiredError,
    UnknownNameError,
    UnknownPipelineError,
    UnknownStateError,
)

Kind = Literal["state", "pipeline"]

UNKNOWN: dict[str, tuple[type[UnknownNameError], type[UnknownNameError]]] = {
    "state": (UnknownStateError, FormerStateError),
    "pipeline": (UnknownPipelineError, FormerPipelineError),
}


class Fate(StrEnum):
    """kept: served with its last values, but not fed. With the other fates, nothing is served under the name."""

    KEPT = "kept"
    ARCHIVED = "archived"
    DROPPED = "dropped"
    RENAMED = "renamed"


@dataclass(frozen=True)
class Former:
    """What became of a name. detail: the folder of an archive, or the new name. pipeline: the one that fed the state.

    txid: the batch that was committed. unfinished: something outside the ledger's database must still be dropped.
    """

    kind: Kind
    name: str
    fate: Fate
    pipeline: str
    txid: int
    detail: str = ""
    definition: str | None = None
    checkpoint_id: str | None = None
    unfinished: bool = False
    at: datetime | None = None
    by: str = ""

    def __str__(self) -> str:
        when = f" on {self.at:%Y-%m-%d %H:%M:%S %Z}" if self.at else ""
        if self.fate == Fate.RENAMED:
            return f"{self.kind} {self.name!r} was renamed to {self.detail!r}{when}"
        where = f" in {self.detail!r}" if self.detail else ""
        return f"{self.kind} {self.name!r} was retired{when} at batch {self.txid}, and is {self.fate}{where}"

    @property
    def freed_by(self) -> str:
        return f"`tidegauge retire {'--pipeline ' * (self.kind == 'pipeline')}{self.name} --forget`"

    @property
    def way_out(self) -> str:
        if self.fate == Fate.RENAMED:
            return f"declare it as {self.detail!r}"
        then = "lets it be fed again" if self.fate == Fate.KEPT else "frees the name"
        return f"remove it from the declaration, or choose another name; {self.freed_by} {then}"


def former(conn: psycopg.Connection, kind: Kind, name: str) -> Former | None:
    """Return what became of a name; None for one that is free or in use."""
    row = conn.execute(
        "SELECT pipeline, txid, detail, definition::text, checkpoint_id, unfinished, at, by, fate "
        "FROM tidegauge.former WHERE kind = %s AND name = %s",
        [kind, name],
    ).fetchone()
    return None if row is None else Former(kind, name, Fate(row[-1]), *row[:-1])


def record(conn: psycopg.Connection, what: Former) -> None:
    """Record what becomes of a name, replacing an earlier record."""
    columns = ("kind", "name", "fate", "pipeline", "txid", "detail", "definition", "checkpoint_id", "unfinished", "by")
    forget(conn, what.kind, what.name)
    conn.execute(
        "INSERT INTO tidegauge.former (kind, name, fate, pipeline, txid, detail, definition, checkpoint_id, "
        "unfinished, by) VALUES (%s, %s, %s, %s, %s, %s, %s::jsonb, %s, %s, %s)",
        [getattr(what, column) for column in columns],
    )


def finish(conn: psycopg.Connection, kind: Kind, name: str) -> None:
    conn.execute("UPDATE tidegauge.former SET unfinished = false WHERE kind = %s AND name = %s", [kind, name])


def forget(conn: psycopg.Connection, kind: Kind, name: str) -> bool:
    """Free a name. Returns whether there was a record of it."""
    return bool(conn.execute("DELETE FROM tidegauge.former WHERE kind = %s AND name = %s", [kind, name]).rowcount)


def unknown(conn: psycopg.Connection, kind: Kind, name: str, names: list[str]) -> UnknownNameError:
    """Return the error for an unknown name. It says what became of the name, or else which names exist."""
    found = former(conn, kind, name)
    is_unknown, is_former = UNKNOWN[kind]
    return is_unknown.among(name, names) if found is None else is_former(str(found))


def check_name(conn: psycopg.Connection, kind: Kind, name: str) -> None:
    """Raise RetiredError if a declared name was retired or renamed."""
    found = former(conn, kind, name)
    if found is not None:
        raise RetiredError(f"{found}; {found.way_out}")


def loaded(found: Former) -> Any:
    return json.loads(found.definition or "null")
