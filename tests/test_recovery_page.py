"""docs/recovery.md: each finding is in its table of contents, and each message, command and statement has a test."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidegauge.pipelines.errors
import tidegauge.state_backends.errors
from tests.recovery_page import FINDINGS, PAGE, commands, messages, statements
from tidegauge.state_backends.errors import KeyValueStoreError, SynchronizerError, TidegaugeError, UnknownNameError

# What an operator sees of each error that says that something went back, was lost or is in the way.
FINDINGS_OF = {
    "BackendSetupError": ["A store may evict rows", "A store has no append-only file"],
    "BackendUnavailable": ["A store is full"],
    "BatchOrderError": [
        "The checkpoint is behind the ledger",
        "The ledger is behind the checkpoint: the database was restored",
    ],
    "ChangedResultError": ["A reprocess gives other results"],
    "CheckpointMismatchError": ["The checkpoint is lost"],
    "CheckpointTornError": ["A power cut has torn the checkpoint"],
    "ClockError": ["The clocks of database and driver differ"],
    "DeviationError": ["An audit found a deviation"],
    "DependentObjectsError": ["A view depends on a table that changes"],
    "FencedError": ["The database was restored, or a standby promoted"],
    "FindingError": ["A rebuild was cut short"],
    "FoldRangeError": ["Values that cannot be counted"],
    "InputChangedError": ["A batch comes again with other input"],
    "InputLostError": ["Kafka no longer has messages that were not read"],
    "LostBatchesError": ["A store is behind the ledger", "A store lacks keys of a batch", "A store has dropped rows"],
    "LostWritesError": ["A store lacks keys of a batch", "Redis has lost an attempt"],
    "CheckpointUnreachableError": ["A checkpoint that cannot be reached"],
    "PipelineError": ["A checkpoint that cannot be reached"],
    "PipelineHeldError": ["The driver's host vanished"],
    "RebuildingError": ["A rebuild was cut short"],
    "RecountError": ["An audit found a deviation"],
    "ResumeError": ["A recovery that cannot be done"],
    "RewindError": ["A recovery that cannot be done"],
    "RollBackError": ["A roll-back that cannot be done", "A reprocess was interrupted"],
    "ServerVersionError": ["PostgreSQL is too old"],
    "ShorterInputError": ["A reprocess would count less than the states have counted"],
    "SourceReplacedError": ["A topic, folder or database was replaced"],
    "SourceUnavailableError": ["A source does not answer"],
    "StateBusyError": ["A state is busy"],
    "StateGapError": ["A state or a measure was not fed for a while"],
    "StoreAheadError": ["A store is ahead of the ledger"],
    "SwapError": ["A reprocess was interrupted"],
    "TablesBusyError": ["A schema change waits for a reader"],
}

# For who writes a declaration, a program, a request or a command: the message is all that there is to say.
OF_PROGRAMS = {
    "BackfillError", "BadInputError", "CapabilityError", "DuplicateKeyError", "FilterError", "KeyShapeError",
    "LifeError", "MissingPackageError", "MovedOnError", "NotCommittedError", "OutOfReachError",
    "PipelinePausedError", "PoolerError", "RangeTooLargeError", "RepeatedUpdateError", "RetiredError", "RolesError",
    "SchemaVersionError", "SecondWriterError", "SourceSetupError", "SpecError",
    "SpecMismatchError", "StaleBatchError", "TilesGoneError", "ValueShapeError",
}  # fmt: skip

MODULES = [
    ast.parse(text)
    for path in Path(__file__).parent.rglob("test_*.py")
    if "from tests.recovery_page import " in (text := path.read_text())
]


def calls(tree: ast.Module, function: str) -> Iterator[tuple[str, int]]:
    """Yield the finding and the number that each call of `function` names.

    A call with a variable stands for the keys of the module's dictionaries, as in a parametrized test.
    """
    keys = [key for node in ast.walk(tree) if isinstance(node, ast.Dict) for key in node.keys]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == function:
            named, *number = node.args
            for finding in [named] if isinstance(named, ast.Constant) else keys:
                if isinstance(finding, ast.Constant):
                    yield finding.value, number[0].value if number else 1


def claimed(function: str) -> set[tuple[str, int]]:
    """Return what the tests name in calls of `function`."""
    return {call for module in MODULES for call in calls(module, function)}


@pytest.mark.parametrize("shown", [commands, statements])
def test_all_that_the_page_says_to_type_is_run_by_a_test(shown):
    findings = {(finding, 1) for finding in FINDINGS if shown(finding)}

    assert sorted(findings - claimed(shown.__name__)) == []


def test_each_message_of_the_page_is_compared_with_that_of_a_real_fault():
    shown = {(finding, number) for finding in FINDINGS for number, _ in enumerate(messages(finding), start=1)}

    assert sorted(shown - claimed("message_of")) == []


def test_the_tables_at_the_top_have_each_finding_once_with_words_of_its_messages():
    rows = re.findall(r"^\| (.*) \| \[(.*)\]\(#(.*)\) \|$", PAGE, re.MULTILINE)

    assert [finding for _, finding, _ in rows] == list(FINDINGS)
    for words, finding, anchor in rows:
        assert anchor == re.sub(r"[^\w -]", "", finding.lower()).replace(" ", "-")
        for fragment in re.findall(r"`([^`]*)`", words):
            assert fragment in " ".join(messages(finding))


def test_each_error_has_a_finding_or_is_for_programs():
    programs = (KeyValueStoreError, SynchronizerError, UnknownNameError)
    errors = {
        name
        for module in (tidegauge.state_backends.errors, tidegauge.pipelines.errors)
        for name, kind in vars(module).items()
        if isinstance(kind, type) and issubclass(kind, TidegaugeError) and not issubclass(kind, programs)
    } - {"TidegaugeError"}

    assert errors == FINDINGS_OF.keys() | OF_PROGRAMS
    assert {finding for findings in FINDINGS_OF.values() for finding in findings} - FINDINGS.keys() == set()
