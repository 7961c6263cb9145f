"""States, pipelines, batches and maintenance runs as the API describes them: dicts whose times are text. Also tokens.

A server may send more members than are listed here.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal, TypedDict, cast
from uuid import uuid4

from tidegauge.client.calls import Call, Pause, Request, Steps, clock, path
from tidegauge.client.errors import DeadlineError
from tidegauge.client.lookups import names
from tidegauge.client.tokens import Token
from tidegauge.client.values import key_in_json

UNFINISHED = ("queued", "running")
FIRST_POLL_SECONDS, LONGEST_POLL_SECONDS = 0.05, 1.0


class Measure(TypedDict):
    aggregate: str
    type: str
    since_txid: int
    last_fed_txid: int | None


class StateDocument(TypedDict):
    """A state: its columns by SQL type, its size, and the batch that readers see."""

    name: str
    pipeline: str
    kind: Literal["opaque", "transactional", "non_transactional"]
    key: dict[str, str]
    measures: dict[str, Measure]
    ttl_seconds: float | None
    tiles: dict[str, float | None] | None
    changelog: bool
    backend: str
    keys_estimate: int
    bytes: int
    epoch: str
    txid: int
    batch_time: str | None
    guarantee: str
    isolation: Literal["committed", "uncommitted"]
    fed: bool
    finding: str


class PipelineDocument(TypedDict):
    """A pipeline: its driver's status, its committed batch, its lag."""

    name: str
    description: str
    guarantee: str
    status: str
    message: str
    failures: int
    wanted: Literal["running", "paused"]
    epoch: str
    committed_txid: int
    committed_time: str | None
    committed_at: str | None
    open_txid: int | None
    rows_per_second: float
    pending: dict[str, Any] | None
    verdict: str
    verdict_reason: str
    lag_seconds: float | None
    dead_letters: int
    states: list[str]


class BatchDocument(TypedDict):
    """A batch of a pipeline, and how many keys it wrote."""

    pipeline: str
    epoch: str
    txid: int
    attempt: int
    status: Literal["open", "committed"]
    batch_time: str
    committed_at: str | None
    rows_in: int | None
    keys_written: dict[str, int]
    dead_letters: int


class Run(TypedDict):
    """A maintenance run. status: queued, running, done, failed or cancelled. before, after: rows and bytes."""

    id: int
    kind: str
    state: str
    status: str
    requested_by: str
    requested_at: str
    started_at: str | None
    finished_at: str | None
    cancel_requested: bool
    progress: list[dict[str, Any]]
    before: dict[str, int]
    after: dict[str, int]
    error: str


def state(call: Call, name: str) -> Steps[StateDocument]:
    return cast(StateDocument, (yield from call.json(Request("GET", path("states", name)))))


def states(call: Call) -> Steps[list[StateDocument]]:
    return cast("list[StateDocument]", (yield from call.json(Request("GET", path("states"))))["states"])


def pipelines(call: Call) -> Steps[list[PipelineDocument]]:
    return cast("list[PipelineDocument]", (yield from call.json(Request("GET", path("pipelines"))))["pipelines"])


def pipeline(call: Call, name: str) -> Steps[PipelineDocument]:
    return cast(PipelineDocument, (yield from call.json(Request("GET", path("pipelines", name)))))


def batches(call: Call, pipeline: str, limit: int) -> Steps[list[BatchDocument]]:
    """Return the newest batches of a pipeline, the newest first."""
    where = path("pipelines", pipeline, "batches")
    document = yield from call.json(Request("GET", where, {"limit": str(limit)}))
    return cast("list[BatchDocument]", document["batches"])


def steer(call: Call, pipeline: str, action: Literal["pause", "resume"]) -> Steps[PipelineDocument]:
    request = Request("POST", path("pipelines", pipeline, action), headers=_once())
    return cast(PipelineDocument, (yield from call.json(request)))


def runs(call: Call, limit: int, **wanted: str | None) -> Steps[list[Run]]:
    asked = {name: value for name, value in wanted.items() if value is not None}
    document = yield from call.json(Request("GET", path("maintenance"), {"limit": str(limit), **asked}))
    return cast("list[Run]", document["runs"])


def run(call: Call, run_id: int) -> Steps[Run]:
    return cast(Run, (yield from call.json(Request("GET", path("maintenance", run_id)))))


def request_run(call: Call, state: str, kind: Literal["compaction", "expiry"]) -> Steps[Run]:
    return cast(Run, (yield from call.json(Request("POST", path("states", state, kind), headers=_once()))))


def _once() -> dict[str, str]:
    # The key makes retries safe, because the server carries out a request and its repetitions once. Without it, a pause
    # that is repeated after a lost answer could pause a pipeline that somebody has resumed meanwhile.
    return {"Idempotency-Key": uuid4().hex}


def cancel(call: Call, run_id: int) -> Steps[Run]:
    return cast(Run, (yield from call.json(Request("DELETE", path("maintenance", run_id), is_safe=False))))


def wait_for(call: Call, run_id: int, seconds: float) -> Steps[Run]:
    """Return the run once it has ended. Raises DeadlineError if it does not end within `seconds`."""
    ends, pause = clock() + seconds, FIRST_POLL_SECONDS
    while (found := (yield from run(call, run_id)))["status"] in UNFINISHED:
        if clock() >= ends:
            raise DeadlineError(f"maintenance run {run_id} is still {found['status']} after {seconds:g} s")
        yield Pause(min(pause, max(0.0, ends - clock())))
        pause = min(LONGEST_POLL_SECONDS, pause * 1.5)
    return found


def make_token(call: Call, states: Sequence[str] | None, key_prefix: Any, **wanted: Any) -> Steps[Token]:
    body = wanted | {"states": names(states), "key_prefix": None if key_prefix is None else key_in_json(key_prefix)}
    body = {name: value for name, value in body.items() if value is not None}
    # Safe to repeat, because a second token does no harm.
    document = yield from call.json(Request("POST", path("tokens"), body=body))
    ends = datetime.fromisoformat(document["expires_at"])
    return Token(
        document["token"], ends, document["states"], document["key_prefix"], document["rate"], document["burst"],
        document["sub"],
    )  # fmt: skip
