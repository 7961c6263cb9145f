"""Rewind: take a pipeline's states and its ledger back to an earlier committed batch.

A state is rewound with its changelog, which has every version since the last compaction, or with the previous versions
in its rows, which reach back one batch. A state that was added later is emptied. A state for which none of these works
is reported before anything is changed. States in the ledger's database go back in one transaction with the ledger.
Those in other stores follow, and a driver that starts in between finds them ahead of the ledger.

The next batch is left open, as if its driver had died. So the next driver reverts what is left of it, and does not
replay the committed batch, because the rows of that may have lost their previous versions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import psycopg
from psycopg.rows import dict_row

from tidegauge.state_backends.changelog import Changelog
from tidegauge.state_backends.dead_letters import replay as dead_letter_replay
from tidegauge.state_backends.errors import FindingError, RewindError, UnknownPipelineError
from tidegauge.state_backends.ledger.batch_ledger import notify
from tidegauge.state_backends.ledger.epochs import new_epoch
from tidegauge.state_backends.protocols import BACKENDS, IBackingMap
from tidegauge.state_backends.schema.catalog import Catalog
from tidegauge.state_backends.spec.state_spec import StateSpec

CHUNK_KEYS = 10_000

Way = Literal["changelog", "previous versions", "emptied", "unchanged"]

LEDGER = """
UPDATE tidegauge.pipeline SET fence = fence + 1, token = '', committed_txid = %(to)s, committed_attempt = %(attempt)s,
    committed_batch_id = %(batch_id)s, committed_time = %(batch_time)s, open_txid = %(to)s + 1, open_attempt = 1,
    open_batch_id = %(batch_id)s + 1, open_time = NULL
WHERE name = %(pipeline)s
"""

# A state that lost its previous versions, or that was emptied, cannot be read as of earlier batches.
CATALOG = """
UPDATE tidegauge.state SET since_txid = least(since_txid, %(to)s),
    oldest_txid = CASE WHEN name = ANY(%(logged)s) THEN oldest_txid ELSE %(to)s END,
    measures_since = (SELECT coalesce(jsonb_object_agg(key, least(value::bigint, %(to)s)), '{}')
                      FROM jsonb_each_text(measures_since)),
    last_fed_txid = CASE WHEN last_fed_txid > %(to)s THEN %(to)s ELSE last_fed_txid END,
    measures_last_fed = (SELECT coalesce(jsonb_object_agg(key, least(value::bigint, %(to)s)), '{}')
                         FROM jsonb_each_text(measures_last_fed))
WHERE pipeline = %(pipeline)s
"""


@dataclass(frozen=True)
class StateStep:
    """How one state goes back; `obstacle` says why it cannot, and is empty if it can."""

    spec: StateSpec
    way: Way
    obstacle: str = ""

    def __str__(self) -> str:
        return f"state {self.spec.name!r}: {self.obstacle or WORDS[self.way]}"


WORDS: dict[Way, str] = {
    "changelog": "is rewound with its changelog",
    "previous versions": "is rewound with the previous versions in its rows",
    "emptied": "is emptied, because it was added after that batch",
    "unchanged": "stays as it is",
}


class Rewind:
    """One rewind of a pipeline to batch `to`.

    conn: in autocommit mode; the caller holds the pipeline (`BatchLedger.idle`) and the states.
    Raises UnknownPipelineError; RewindError if `to` is not a committed batch that the ledger still knows.
    """

    def __init__(self, conn: psycopg.Connection, pipeline: str, to: int) -> None:
        self.pipeline = pipeline
        self.to = to
        self._conn = conn
        self._following: list[StateStep] = []
        self._ledger = self._ledger_row()
        self._batch = self._batch_row()

    @property
    def committed(self) -> int:
        """The batch that is committed before the rewind."""
        return int(self._ledger["committed_txid"])

    def plan(self) -> list[StateStep]:
        """Return how each state goes back, or why it cannot. Changes nothing."""
        return [self._step(spec) for spec in Catalog(self._conn).specs(self.pipeline)]

    def run(self) -> None:
        """Take the ledger and the states in its database back in one transaction; `follow` does the rest.

        Raises RewindError before it changes anything.
        """
        steps = self.plan()
        if stuck := [step for step in steps if step.obstacle]:
            raise RewindError(
                f"pipeline {self.pipeline!r} cannot go back to batch {self.to}: {'; '.join(map(str, stuck))}"
            )
        if self.to == self.committed:
            return
        with self._conn.transaction():
            # First, because it waits for tasks in flight, which lock the ledger's row, and fences off later ones.
            self._take_ledger_back()
            for step in steps:
                if BACKENDS[step.spec.backend].tables is not None:
                    self._take_back(step)
                else:
                    self._following.append(step)
                if step.spec.changelog:
                    Changelog(self._conn, step.spec).forget_after(self.to)
            self._forget_batches([step.spec.name for step in steps if step.way == "changelog"])

    def follow(self) -> None:
        """Take the states in other stores back, after `run`.

        If it is killed, they stay ahead of the ledger; the next driver finds that when it starts, and names the remedy.
        """
        for step in self._following:
            self._take_back(step)

    def _step(self, spec: StateSpec) -> StateStep:
        if self.to == self.committed:
            return StateStep(spec, "unchanged")
        since, oldest, last_fed = self._since(spec)
        if last_fed is not None and last_fed <= self.to:
            return StateStep(spec, "unchanged")
        if since >= self.to:
            return StateStep(spec, "emptied")
        if spec.changelog:
            late = f"its changelog reaches back only to batch {oldest}" if oldest > self.to else ""
            return StateStep(spec, "changelog", late)
        return StateStep(spec, "previous versions", self._lack_of_versions(spec))

    def _lack_of_versions(self, spec: StateSpec) -> str:
        if spec.kind != "opaque":
            return f"has no changelog, and a {spec.kind} state has no previous versions"
        if self.to < self.committed - 1:
            return f"has no changelog, and its rows reach back only to batch {self.committed - 1}"
        if self._ledger["open_txid"] is not None:
            return (
                f"has no changelog, and batch {self._ledger['open_txid']} was begun; reverting it uses up the previous "
                "versions in its rows"
            )
        try:
            BACKENDS[spec.backend].check_one_back(self._conn, spec, self.to)
        except FindingError as error:
            said = str(error).removeprefix(f"state {spec.name!r}: ")
            return f"its store would disagree with the ledger afterwards: {said}"
        return ""

    def _take_back(self, step: StateStep) -> None:
        backend = BACKENDS[step.spec.backend]
        rows = backend.rows(self._conn, step.spec)
        match step.way:
            case "changelog":
                backend.take_back(self._conn, step.spec, self.to)
            case "previous versions":
                rows.revert(self.committed)
            case "emptied":
                backend.begin_rebuild(self._conn, step.spec, goes_on=False)
                _empty(rows)
                backend.end_rebuild(self._conn, step.spec, self.to)

    def _take_ledger_back(self) -> None:
        self._conn.execute(LEDGER, self._batch | {"pipeline": self.pipeline, "to": self.to})
        reason = f"pipeline {self.pipeline!r} was rewound from batch {self.committed} to batch {self.to}"
        new_epoch(self._conn, reason, self.pipeline)
        notify(self._conn, self.pipeline)

    def _forget_batches(self, logged: Sequence[str]) -> None:
        place = {"pipeline": self.pipeline, "to": self.to}
        self._conn.execute("DELETE FROM tidegauge.dead_letter WHERE pipeline = %(pipeline)s AND txid > %(to)s", place)
        dead_letter_replay.forget_after(self._conn, self.pipeline, self.to)
        self._conn.execute("DELETE FROM tidegauge.batch WHERE pipeline = %(pipeline)s AND txid > %(to)s", place)
        self._conn.execute("DELETE FROM tidegauge.input_file WHERE pipeline = %(pipeline)s AND txid > %(to)s", place)
        self._conn.execute(CATALOG, place | {"logged": list(logged)})

    def _ledger_row(self) -> dict[str, Any]:
        with self._conn.cursor(row_factory=dict_row) as cursor:
            row = cursor.execute("SELECT * FROM tidegauge.pipeline WHERE name = %s", [self.pipeline]).fetchone()
        if row is None:
            names = self._conn.execute("SELECT name FROM tidegauge.pipeline ORDER BY name").fetchall()
            raise UnknownPipelineError.among(self.pipeline, [name for (name,) in names])
        return row

    def _batch_row(self) -> dict[str, Any]:
        with self._conn.cursor(row_factory=dict_row) as cursor:
            row = cursor.execute(
                "SELECT attempt, batch_id, batch_time FROM tidegauge.batch "
                "WHERE pipeline = %s AND txid = %s AND txid > %s AND committed_at IS NOT NULL",
                [self.pipeline, self.to, self._ledger["fed_after"]],
            ).fetchone()
        if row is None:
            raise RewindError(
                f"pipeline {self.pipeline!r} cannot go back to batch {self.to}: {self._batches_at_hand()}; to count "
                "from the start of the input, run it with --reprocess"
            )
        return row

    def _batches_at_hand(self) -> str:
        row = self._conn.execute(
            "SELECT min(txid) FROM tidegauge.batch WHERE pipeline = %s AND txid > %s AND committed_at IS NOT NULL",
            [self.pipeline, self._ledger["fed_after"]],
        ).fetchone()
        if row is None or row[0] is None:
            return "the ledger has no committed batch"
        return f"the ledger has batches {row[0]} to {self.committed}"

    def _since(self, spec: StateSpec) -> tuple[int, int, int | None]:
        row = self._conn.execute(
            "SELECT since_txid, oldest_txid, last_fed_txid FROM tidegauge.state WHERE name = %s", [spec.name]
        ).fetchone()
        assert row is not None
        return row[0], row[1], row[2]


def _empty(rows: IBackingMap) -> None:
    keys = [key for key, _ in rows.scan()]
    for first in range(0, len(keys), CHUNK_KEYS):
        rows.multi_remove(keys[first : first + CHUNK_KEYS])
