"""What a key scope shows of states, pipelines, batches and maintenance runs.

A restricted caller sees the states that have keys within its key scope, and the pipelines that feed them. It sees that
something has failed and since when, but no text that may quote data outside its key scope: messages, requesters, the
input and Spark's measurements of a whole batch, and findings about a store.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from typing import Any

from tidegauge.state_backends.errors import FindingError, UnknownNameError, UnknownPipelineError, UnknownStateError
from tidegauge.state_backends.ledger.driver_start import PLAIN
from tidegauge.state_backends.schema.definition import from_definition
from tidegauge.webapp.accounts.permissions import KeyScope, NoSuchKeysError, key_scope
from tidegauge.webapp.catalog import queries, readers, runs
from tidegauge.webapp.catalog.batches import BatchDetail, BatchSummary, newest_batches
from tidegauge.webapp.catalog.models import MaintenanceRun
from tidegauge.webapp.catalog.pipeline_status import PipelineStatus
from tidegauge.webapp.catalog.runs import UnfinishedRunError, UnknownRunError
from tidegauge.webapp.catalog.series import PipelineSeries, TimeRange, pipeline_series
from tidegauge.webapp.catalog.state_summary import StateSummary

NOT_SERVED = "the state is not served at present; the operators can see why"
UNSEEN = "state does not exist, or no key of it is within the key scope"
QUOTING = (UnknownNameError, NoSuchKeysError, FindingError, UnfinishedRunError)
RUN_FAILED = "the run has failed; the operators can see why"


class Visible:
    """requester: the name with which the caller requests maintenance; it sees that name on its own runs."""

    def __init__(self, scope: KeyScope, requester: str = "") -> None:
        self.scope = scope
        self.requester = requester

    @cached_property
    def names(self) -> frozenset[str] | None:
        """The names of the states that have keys within the key scope; None: all."""
        if self.scope.queries:
            return frozenset()
        if not self.scope.key_prefix:
            return self.scope.states or None
        rows = queries.fetch("SELECT name, definition, ttl FROM tidegauge.state", {})
        specs = [from_definition(row["name"], row["definition"], row["ttl"]) for row in rows]
        return frozenset(spec.name for spec in specs if self.scope.reads(spec))

    def sees(self, state: str) -> bool:
        return self.names is None or state in self.names

    def states(self, pipeline: str | None = None) -> list[StateSummary]:
        return [self._of_state(state) for state in queries.states(pipeline) if self.sees(state.name)]

    def state(self, name: str) -> StateSummary:
        """Raises UnknownStateError, OutsideError."""
        self.scope.check_state(name)
        found = queries.state(name)
        if not self.sees(name):
            self.scope.prefix_of(readers.read(lambda conn: readers.reader(conn, name)).spec)
        return self._of_state(found)

    def pipelines(self) -> list[PipelineStatus]:
        return self.of_pipelines(queries.pipelines())

    def of_pipelines(self, pipelines: Iterable[PipelineStatus]) -> list[PipelineStatus]:
        return [self._of_pipeline(pipeline) for pipeline in pipelines if self._sees_pipeline(pipeline)]

    def pipeline(self, name: str) -> PipelineStatus:
        """Raises UnknownPipelineError, also for a pipeline that feeds none of the visible states."""
        found = queries.pipeline(name)
        if not self._sees_pipeline(found):
            raise UnknownPipelineError(f"pipeline {name!r} does not exist")
        return self._of_pipeline(found)

    def pipeline_of(self, state: str) -> PipelineStatus:
        """Return the pipeline that feeds a state. Raises UnknownStateError, OutsideError."""
        self.scope.check_state(state)
        found = queries.pipeline_of(state)
        if not self.sees(state):
            self.scope.prefix_of(readers.read(lambda conn: readers.reader(conn, state)).spec)
        return self._of_pipeline(found)

    def batches(self, pipeline: str, limit: int, before: int | None = None) -> list[BatchSummary]:
        """Return the newest batches, or those older than `before`. Raises UnknownPipelineError."""
        if self.names is not None:
            self.pipeline(pipeline)
        return self.of_batches(newest_batches(pipeline, limit, before))

    def series(self, pipeline: str, asked: TimeRange) -> PipelineSeries:
        """Return what a pipeline did over time. Raises UnknownPipelineError."""
        if self.names is None:
            return pipeline_series(pipeline, asked)
        self.pipeline(pipeline)
        return pipeline_series(pipeline, asked).without_whole_batches()

    def of_batches(self, batches: Iterable[BatchSummary]) -> list[BatchSummary]:
        return [self._of_batch(batch) for batch in batches]

    def of_batch_detail(self, detail: BatchDetail) -> BatchDetail:
        offsets = detail.offsets if self.names is None else None
        return replace(detail, summary=self._of_batch(detail.summary), offsets=offsets)

    def runs(self, **wanted: Any) -> list[MaintenanceRun]:
        """Return the newest maintenance runs. wanted: the arguments of runs.runs."""
        return [self.of_run(run) for run in runs.runs(**wanted, states=self.names)]

    def run(self, run_id: int) -> MaintenanceRun:
        """Raises UnknownRunError, also for a run of a state that is not visible."""
        found = runs.find_run(run_id)
        if not self.sees(found.state_id):
            raise UnknownRunError(f"there is no maintenance run {run_id}")
        return self.of_run(found)

    def of_run(self, run: MaintenanceRun) -> MaintenanceRun:
        """Remove from a run what the caller may not see. The run must not be saved afterwards."""
        if self.names is not None:
            run.requested_by = run.requested_by if run.requested_by == self.requester else ""
            run.error = run.error and RUN_FAILED
        return run

    def _sees_pipeline(self, pipeline: PipelineStatus) -> bool:
        return self.names is None or any(self.sees(state) for state in pipeline.states)

    def _of_state(self, state: StateSummary) -> StateSummary:
        if self.names is None:
            return state
        return replace(state, finding=state.finding and NOT_SERVED, warning="")

    def _of_pipeline(self, pipeline: PipelineStatus) -> PipelineStatus:
        if self.names is None:
            return pipeline
        reprocess, last = pipeline.reprocess, pipeline.last_reprocess
        return replace(
            pipeline,
            message="",
            wanted_by="",
            host="",
            pid=None,
            start=PLAIN,
            rows_in=0,
            states=[state for state in pipeline.states if self.sees(state)],
            unserved=[state for state in pipeline.unserved if self.sees(state)],
            reprocess=reprocess and replace(reprocess, message=""),
            last_reprocess=last and replace(last, lacks=""),
        )

    def _of_batch(self, batch: BatchSummary) -> BatchSummary:
        if self.names is None:
            return batch
        keys_written = {state: keys for state, keys in batch.keys_written.items() if self.sees(state)}
        tasks = {state: spread for state, spread in batch.tasks.items() if self.sees(state)}
        return replace(batch, keys_written=keys_written, tasks=tasks, rows_in=None, metrics={})


def of_request(request: Any) -> Visible:
    """Return what a user sees."""
    return Visible(key_scope(request), request.user.get_username())


def without_names(error: Exception, request: Any) -> Exception:
    """Return the error that a restricted caller gets: without names and texts from outside its key scope."""
    # The type first, because a user's key scope needs the database, and its absence may be the error.
    if not isinstance(error, QUOTING) or key_scope(request).is_unrestricted:
        return error
    match error:
        case UnknownStateError() | NoSuchKeysError():
            return UnknownStateError(UNSEEN)
        case FindingError() if not Visible(key_scope(request)).sees(error.state):
            return UnknownStateError(UNSEEN)
        case UnknownNameError():
            return UnknownPipelineError("pipeline does not exist")
        case FindingError():
            return FindingError(NOT_SERVED, error.state)
        case _:
            return UnfinishedRunError(f"maintenance run {error.run_id} of this state has not ended", error.run_id)
