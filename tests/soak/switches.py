"""Switches: turn one guard of the product off, in the processes of a control run, which must then fail.

SOAK_OFF names the guards. The product has no such setting: its functions are replaced here, in this process only.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from psycopg import sql

from tidegauge.pipelines.batch.runner import BatchRunner
from tidegauge.state_backends import committed
from tidegauge.state_backends.ledger import batch_ledger as ledger
from tidegauge.state_backends.ledger import epochs


def without_revert() -> None:
    """A retry writes over what the attempt before it left."""
    BatchRunner._revert = lambda self, batch, sessions: None  # type: ignore[method-assign]


def without_fence() -> None:
    """Whoever writes is let, also under an old fence or attempt."""
    _replace_everywhere("lock_fence", lambda conn, batch: None)
    _replace_everywhere("ask_fence", lambda conn, batch: lambda: None)


def without_snapshot() -> None:
    """A reader sees the newest version of each row, committed or not."""
    _replace_everywhere("exists_at_commit", lambda table: sql.SQL("true"))
    committed._committed_column = lambda table, name: sql.Identifier("t", name)


def without_epoch() -> None:
    """Every acquisition of every incarnation of the ledger looks the same."""
    ledger.secrets = SimpleNamespace(token_hex=lambda size: "same")  # type: ignore[attr-defined]
    epochs.current_epoch = lambda conn, *_, **__: "same"
    acquire = ledger.BatchLedger.acquire

    def acquired(self: ledger.BatchLedger, **options: Any) -> int:
        always = "CREATE OR REPLACE FUNCTION tidegauge.is_original() RETURNS boolean LANGUAGE sql STABLE RETURN true"
        self._conn.execute(always)
        return acquire(self, **options)

    ledger.BatchLedger.acquire = acquired  # type: ignore[method-assign]


def without_fingerprint() -> None:
    """A batch that comes again is taken to have the input it had."""
    ledger.BatchLedger._difference = lambda self, txid, held: None  # type: ignore[method-assign]


SWITCHES: dict[str, Callable[[], None]] = {
    "revert": without_revert,
    "fence": without_fence,
    "snapshot": without_snapshot,
    "epoch": without_epoch,
    "fingerprint": without_fingerprint,
}


def turn_off_ordered() -> None:
    """Turn off what SOAK_OFF names."""
    turn_off(os.environ.get("SOAK_OFF", ""))


def turn_off(names: str) -> None:
    """Turn guards off in this process. names: with commas between them."""
    for name in filter(None, names.split(",")):
        SWITCHES[name]()


def turn_off_for_readers(names: str) -> None:
    """Turn off, in the process of the checkers, what concerns readers."""
    turn_off(",".join(set(names.split(",")) & {"snapshot"}))


def _replace_everywhere(name: str, function: Callable[..., Any]) -> None:
    """Replace a function of the product in each module that has imported it by its name."""
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("tidegauge.") and name in vars(module):
            setattr(module, name, function)


@contextmanager
def replaced(owner: Any, name: str, new: Any) -> Iterator[None]:
    """Replace an attribute within the block."""
    before = getattr(owner, name)
    setattr(owner, name, new)
    try:
        yield
    finally:
        setattr(owner, name, before)
