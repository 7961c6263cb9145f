"""Former names: states and pipelines that were retired or renamed, and what became of each.

A name that simply vanished would answer like a mistyped one, and an old release that still declares it would create
it again, counting from the middle of its input. So the name stays taken, and says what became of it, until it is
forgotten.
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
    """kept: it is served as it was last, and not fed. The other ones are not served under that name."""

    KEPT = "kept"
    ARCHIVED = "archived"
    DROPPED = "dropped"
    RENAMED = "renamed"


@dataclass(frozen=True)
class Former:
    """What became of a name. detail: the folder of an archive, or the new name. pipeline: that fed the state.

    txid: the batch that was committed. unfinished: something outside of the ledger's database has still to go.
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
        return f"take it out of the declaration, or choose another name; {self.freed_by} {then}"


def former(conn: psycopg.Connection, kind: Kind, name: str) -> Former | None:
    """Return what became of a name; None for one that is free or in use."""
    row = conn.execute(
        "SELECT pipeline, txid, detail, definition::text, checkpoint_id, unfinished, at, by, fate "
        "FROM tidegauge.former WHERE kind = %s AND name = %s",
        [kind, name],
    ).fetchone()
    return None if row is None else Former(kind, name, Fate(row[-1]), *row[:-1])


def record(conn: psycopg.Connection, what: Former) -> None:
    """Record what becomes of a name, instead of what was recorded before."""
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
    """Free a name. Returns whether anything was recorded of it."""
    return bool(conn.execute("DELETE FROM tidegauge.former WHERE kind = %s AND name = %s", [kind, name]).rowcount)


def unknown(conn: psycopg.Connection, kind: Kind, name: str, names: list[str]) -> UnknownNameError:
    """Return the error for a name that is not there: what became of it, or else the names that are."""
    found = former(conn, kind, name)
    is_unknown, is_former = UNKNOWN[kind]
    return is_unknown.among(name, names) if found is None else is_former(str(found))


def check_name(conn: psycopg.Connection, kind: Kind, name: str) -> None:
    """Raise RetiredError where a name that is declared was retired or renamed."""
    found = former(conn, kind, name)
    if found is not None:
        raise RetiredError(f"{found}; {found.way_out}")


def loaded(found: Former) -> Any:
    return json.loads(found.definition or "null")
