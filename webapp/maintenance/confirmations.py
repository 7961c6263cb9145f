"""The confirmations of maintenance runs and of replays of dead letters, in the dashboard and the admin."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.conf import settings

from tidegauge.state_backends.dead_letters.replay import Found
from tidegauge.webapp.catalog.models import MaintenanceRun
from tidegauge.webapp.catalog.pipeline_status import PipelineStatus
from tidegauge.webapp.catalog.retention import time_to_live
from tidegauge.webapp.core.confirmation import REMOVED, TXID, Confirmation
from tidegauge.webapp.core.writing import size
from tidegauge.webapp.maintenance import runner
from tidegauge.webapp.maintenance.runner import Plan

Kind = MaintenanceRun.Kind

TITLES = {Kind.COMPACTION: "Compact", Kind.EXPIRY: "Expire", Kind.AUDIT: "Audit"}
CONTINUES = (
    "Readers and pipelines continue during a run. A run can be cancelled; rows that it has removed stay removed."
)

Link = Callable[[Any], Any]


def maintenance_confirmation(
    kind: Kind,
    planned: Sequence[Plan],
    *,
    cancel_url: str,
    link_state: Link,
    link_run: Callable[[MaintenanceRun, str], Any],
    hidden: Sequence[tuple[str, str]] = (),
) -> Confirmation:
    """Return the confirmation of a run of each state, with the effect on each."""
    useful = [plan for plan in planned if not plan.is_idle]
    label = TITLES[kind]
    which = f"state {planned[0].state.name}" if len(planned) == 1 else f"{len(planned)} states"
    return Confirmation(
        title=f"{label} {which}?",
        button=f"{label} {len(useful)} of them" if 0 < len(useful) < len(planned) else label * bool(useful),
        cancel_url=cancel_url,
        notes=NOTES[kind](),
        headers=["state", "keys", "size", "effect", "active run"],
        rows=[_plan_row(plan, link_state, link_run) for plan in planned],
        danger=kind != Kind.AUDIT,
        hidden=hidden,
        seen={f"state {plan.state.name!r}": _seen_of(plan) for plan in useful},
    )


def replay_confirmation(
    found: Mapping[str, Found],
    pipelines: Sequence[PipelineStatus],
    *,
    cancel_url: str,
    link_pipeline: Link,
    hidden: Sequence[tuple[str, str]] = (),
) -> Confirmation:
    """Return the confirmation of a replay of the letters found in each pipeline, up to its committed batch."""
    letters = sum(each.letters for each in found.values())
    return Confirmation(
        title=f"Replay {letters:,} dead letter{'' if letters == 1 else 's'}?",
        button="Replay" * bool(letters),
        cancel_url=cancel_url,
        notes=[
            "The driver reads them again with the pipeline's present code, in a batch of their own; each counts once. "
            "To undo this, rewind the pipeline to the batch before.",
            "Input that still cannot be read stays a dead letter. Letters of states and letters without a raw record "
            "cannot be replayed.",
        ],
        headers=["pipeline", "replayed", "without a raw record", "counted by a partial reprocess", "up to batch"],
        rows=[
            [link_pipeline(each.name), f"{of.letters:,}", f"{of.without_record:,}", f"{of.counted:,}",
             f"{each.committed_txid:,}"]
            for each in pipelines if (of := found.get(each.name))
        ],
        hidden=hidden,
        seen={
            f"pipeline {each.name!r}": {"ledger": each.epoch, TXID: each.committed_txid, "dead letters": of.letters}
            for each in pipelines if (of := found.get(each.name))
        },
    )  # fmt: skip


def _seen_of(plan: Plan) -> dict[str, Any]:
    state = plan.state
    return {
        "ledger": state.epoch,
        TXID: state.txid,
        "retention": time_to_live(state.ttl),
        "kept history": time_to_live(plan.keeps),
        "changelog": state.changelog,
        REMOVED: plan.removable,
    }


def _plan_row(plan: Plan, link_state: Link, link_run: Callable[[MaintenanceRun, str], Any]) -> list[Any]:
    state, run = plan.state, plan.busy
    active = run and link_run(run, f"{run.kind} {run.id} is {run.status}: no other run is queued")
    keys = f"{state.keys_estimate:,}"
    return [link_state(state.name), keys, size(state.bytes), EFFECTS[plan.kind](plan), active or "none"]


def _compaction_effect(plan: Plan) -> str:
    if not plan.state.changelog:
        return "remove tombstones and free unused space; it has no changelog"
    if plan.horizon is None:
        missing = f"is older than {time_to_live(plan.keeps)} yet" if plan.keeps else "can be removed yet"
        return f"free unused space; no history {missing}"
    txid, time, oldest = plan.horizon
    entries = "the replaced entries"
    if plan.removable is not None:
        entries = f"{plan.removable:,} of {plan.rows:,} entries"
    lost = txid - oldest
    unreadable = f"; the {lost:,} batches from {oldest:,} to {txid - 1:,} can no longer be read" if lost > 1 else ""
    unreadable = f"; batch {oldest:,} can no longer be read" if lost == 1 else unreadable
    return f"remove {entries} of its changelog, up to batch {txid:,} of {time:%Y-%m-%d %H:%M} UTC{unreadable}"


def _expiry_effect(plan: Plan) -> str:
    if plan.is_idle:
        return "none: its retention is unlimited"
    rows = "rows" if plan.removable is None else f"{plan.removable:,} of {plan.rows:,} rows"
    return f"remove {rows}, not updated for {time_to_live(plan.state.ttl)}"


def _audit_effect(plan: Plan) -> str:
    return "none: it has no changelog" if plan.is_idle else f"compare {settings.TIDEGAUGE_AUDIT_KEYS:,} keys or more"


def _compaction_notes() -> list[str]:
    older = f"History older than {time_to_live(runner.keeps())}" if runner.keeps() else "Committed history"
    return [
        f"{older} is reduced to the newest version of each key; reads of earlier batches are then no longer possible. "
        "This cannot be undone.",
        CONTINUES,
    ]


def _expiry_notes() -> list[str]:
    return [
        "Readers no longer see rows past their retention; this frees their space. Rows of an open batch are kept.",
        CONTINUES,
    ]


def _audit_notes() -> list[str]:
    return [
        "Keys chosen at random are compared with the changelog; nothing is changed. A run fails if a key deviates.",
        'Input that was never counted is only found by "tidegauge audit", which reads the source again.',
        "Readers and pipelines continue during a run.",
    ]


NOTES = {Kind.COMPACTION: _compaction_notes, Kind.EXPIRY: _expiry_notes, Kind.AUDIT: _audit_notes}
EFFECTS: dict[str, Callable[[Plan], str]] = {
    Kind.COMPACTION: _compaction_effect,
    Kind.EXPIRY: _expiry_effect,
    Kind.AUDIT: _audit_effect,
}
