"""Keyed state whose every update counts exactly once: maps, ledger, changelog, snapshot reads, trimming.

Knows neither Spark nor Django; needs psycopg and pyarrow.
"""

from state_backends.aggregators import Count, Max, Mean, Min, Sum
from state_backends.backing.memory import MemoryBackingMap
from state_backends.backing.postgres import PostgresBackingMap
from state_backends.catalog import Catalog
from state_backends.journal.changelog import Changelog
from state_backends.journal.ledger import Batch, BatchLedger
from state_backends.maps.non_transactional import NonTransactionalMap
from state_backends.maps.opaque import OpaqueMap
from state_backends.maps.snapshottable import SnapshottableMap
from state_backends.maps.transactional import TransactionalMap
from state_backends.maps.updaters import Combine, Reduce, Replace
from state_backends.protocols import IBackingMap
from state_backends.reader.snapshot import Snapshot, StateReader
from state_backends.spec import StateSpec
from state_backends.versioned import Versioned

__all__ = [
    "Batch",
    "BatchLedger",
    "Catalog",
    "Changelog",
    "Combine",
    "Count",
    "IBackingMap",
    "Max",
    "Mean",
    "MemoryBackingMap",
    "Min",
    "NonTransactionalMap",
    "OpaqueMap",
    "PostgresBackingMap",
    "Reduce",
    "Replace",
    "Snapshot",
    "SnapshottableMap",
    "StateReader",
    "StateSpec",
    "Sum",
    "TransactionalMap",
    "Versioned",
]
