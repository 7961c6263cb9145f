"""Keyed state whose every update counts exactly once: maps, ledger, changelog, snapshot reads, trimming.

Knows neither Spark nor Django; needs psycopg, pyarrow, redis and datasketches.
"""

from state_backends.aggregators import (
    Count,
    DistinctCount,
    DistinctSet,
    First,
    Last,
    Latest,
    Max,
    Mean,
    Min,
    Quantiles,
    Reducer,
    StdDev,
    Sum,
    TopK,
    Variance,
)
from state_backends.backends import state_reader
from state_backends.backends.memory import MemoryBackingMap
from state_backends.backends.postgres.reader import StateReader
from state_backends.backends.postgres.rows import PostgresBackingMap
from state_backends.backends.redis.rows import RedisBackingMap
from state_backends.backends.wrappers import CachedMap, LoggedMap
from state_backends.changelog import Changelog
from state_backends.errors import (
    BackendSetupError,
    BackendUnavailable,
    BatchOrderError,
    CapabilityError,
    CheckpointMismatchError,
    CheckpointTornError,
    ClockError,
    ContentionError,
    CorruptedStateError,
    DuplicateKeyError,
    FencedError,
    InputChangedError,
    InvalidLogError,
    KeyShapeError,
    KeyValueStoreError,
    LostBatchesError,
    MovedOnError,
    NoInitialStateError,
    NotCommittedError,
    OutOfReachError,
    PipelineHeldError,
    PositionError,
    RecordTooLargeError,
    RevisionError,
    RewindError,
    SchemaVersionError,
    ServerVersionError,
    SourceReplacedError,
    SpecError,
    SpecMismatchError,
    StaleBatchError,
    StateBusyError,
    StoreClosedError,
    SwapError,
    SynchronizerError,
    TidemarkError,
    TruncatedError,
    UnknownNameError,
    UnknownPipelineError,
    UnknownStateError,
    ValueShapeError,
)
from state_backends.key_value.log import MemoryKeyValueLog, PostgresKeyValueLog
from state_backends.key_value.restore import RestorePlan, plan_restore
from state_backends.key_value.store import KeyValueStore
from state_backends.ledger import Batch, BatchLedger
from state_backends.maps.non_transactional import NonTransactionalMap
from state_backends.maps.opaque import OpaqueMap
from state_backends.maps.snapshottable import SnapshottableMap
from state_backends.maps.transactional import TransactionalMap
from state_backends.maps.updaters import Combine, Reduce, Replace
from state_backends.protocols import BACKENDS, IBackingMap
from state_backends.reader.reader import Snapshot
from state_backends.rebuild import rebuild
from state_backends.row import Versioned
from state_backends.schema.catalog import Catalog
from state_backends.spec import StateSpec
from state_backends.synchronizer.revisioned_stream import RevisionedStream
from state_backends.synchronizer.synchronizer import StateSynchronizer

__all__ = [
    "BACKENDS",
    "BackendSetupError",
    "BackendUnavailable",
    "Batch",
    "BatchLedger",
    "BatchOrderError",
    "CachedMap",
    "CapabilityError",
    "Catalog",
    "Changelog",
    "CheckpointMismatchError",
    "CheckpointTornError",
    "ClockError",
    "Combine",
    "ContentionError",
    "CorruptedStateError",
    "Count",
    "DistinctCount",
    "DistinctSet",
    "DuplicateKeyError",
    "FencedError",
    "First",
    "IBackingMap",
    "InputChangedError",
    "InvalidLogError",
    "KeyShapeError",
    "KeyValueStore",
    "KeyValueStoreError",
    "Last",
    "Latest",
    "LoggedMap",
    "LostBatchesError",
    "Max",
    "Mean",
    "MemoryBackingMap",
    "MemoryKeyValueLog",
    "Min",
    "MovedOnError",
    "NoInitialStateError",
    "NonTransactionalMap",
    "NotCommittedError",
    "OpaqueMap",
    "OutOfReachError",
    "PipelineHeldError",
    "PositionError",
    "PostgresBackingMap",
    "PostgresKeyValueLog",
    "Quantiles",
    "RecordTooLargeError",
    "RedisBackingMap",
    "Reduce",
    "Reducer",
    "Replace",
    "RestorePlan",
    "RevisionError",
    "RevisionedStream",
    "RewindError",
    "SchemaVersionError",
    "ServerVersionError",
    "Snapshot",
    "SnapshottableMap",
    "SourceReplacedError",
    "SpecError",
    "SpecMismatchError",
    "StaleBatchError",
    "StateBusyError",
    "StateReader",
    "StateSpec",
    "StateSynchronizer",
    "StdDev",
    "StoreClosedError",
    "Sum",
    "SwapError",
    "SynchronizerError",
    "TidemarkError",
    "TopK",
    "TransactionalMap",
    "TruncatedError",
    "UnknownNameError",
    "UnknownPipelineError",
    "UnknownStateError",
    "ValueShapeError",
    "Variance",
    "Versioned",
    "plan_restore",
    "rebuild",
    "state_reader",
]
