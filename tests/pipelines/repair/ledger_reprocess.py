"""A reprocess without Spark: the ledgers of both queries, and checkpoints that have only the id of their query.

What survives a crash between two steps of a reprocess is in the ledger and in the folders' names; Spark only feeds.
"""

import json
from pathlib import Path
from uuid import uuid4

import psycopg

from tests.pipelines.repair.words import LETTERS, WORDS, words
from tests.state_backends.feed import Feed
from tidegauge.pipelines.checkpoint.folder import checkpoint_id, settle, shadow_checkpoint
from tidegauge.pipelines.connections import connect
from tidegauge.pipelines.repair.reprocess import Reprocess
from tidegauge.state_backends import BatchLedger, Catalog
from tidegauge.state_backends.schema.swap import shadow_name

NAME, OLD_ID = "word_count", "checkpoint"  # the id that Feed binds


class Killed(BaseException):
    """Stands for kill -9: nothing catches it, and what follows does not run."""


class LedgerReprocess(Reprocess):
    """A reprocess whose pass is one batch of the shadow's ledger."""

    def _pass(self) -> int:
        shadow = shadow_checkpoint(self.checkpoint)
        query = checkpoint_id(shadow) or uuid4().hex
        with connect(self.dsn, "pass") as conn:
            ledger = BatchLedger(conn, shadow_name(NAME))
            ledger.acquire()
            ledger.bind(query)
            batch = ledger.begin(0)
            if batch is not None:
                ledger.commit(batch, rows_in=1)
            ledger.release()
        make_checkpoint(shadow, query)
        return 1


class CountedOnce:
    """A pipeline with one committed batch of its first declaration."""

    def __init__(self, conn: psycopg.Connection, dsn: str, folder: Path) -> None:
        self.conn, self.dsn = conn, dsn
        self.input, self.checkpoint = folder / "input", folder / "checkpoint"
        self.input.mkdir()
        feed = Feed(conn, [WORDS], pipeline=NAME)
        feed.run([{"word": "dog", "count": 1}])
        feed.ledger.release()
        make_checkpoint(self.checkpoint, OLD_ID)

    def reprocess(self, kind: type[Reprocess] = LedgerReprocess, **options) -> Reprocess:
        """Return a reprocess by the second declaration."""
        return kind(words(self.input, LETTERS), None, self.dsn, self.checkpoint, **options)

    def start_driver(self) -> None:
        """Do what a driver does at its start, once it holds the pipeline."""
        settle(self.conn, NAME, self.checkpoint)

    @property
    def is_new(self) -> bool:
        """Whether states, ledger and checkpoint are those that the reprocess made. Raises if they do not fit."""
        is_new = Catalog(self.conn).get("words").measures.keys() == {"letters"}
        bound = BatchLedger(self.conn, NAME).checkpoint_id()
        assert checkpoint_id(self.checkpoint) == bound
        assert (bound != OLD_ID) == is_new
        return is_new

    @property
    def phases(self) -> list[str]:
        return [phase for (phase,) in self.conn.execute("SELECT phase FROM tidegauge.reprocess ORDER BY id")]

    @property
    def folders(self) -> list[str]:
        return sorted(path.name for path in self.checkpoint.parent.glob("checkpoint*"))


def make_checkpoint(folder: Path, query: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "metadata").write_text(json.dumps({"id": query}))
