"""Confirmation: the page between choosing an act and its execution, which says in numbers what the act does.

The dashboard and the admin show the same page. Its form posts to the same address, with `confirmed` and what the page
was drawn from, signed. An act is refused by name if that has changed since, and the page is drawn again.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.core import signing
from django.http import HttpRequest

from state_backends.dead_letter_replay import Found
from webapp.core.writing import size
from webapp.states import maintenance
from webapp.states.maintenance import Plan
from webapp.states.models import MaintenanceRun
from webapp.states.queries import PipelineStatus
from webapp.states.retention import time_to_live

Kind = MaintenanceRun.Kind

CONFIRMED, SEEN = "confirmed", "seen"
VALID = timedelta(hours=1)

# Names of what a page was drawn from. A pipeline goes on meanwhile: its txid may grow, and so may what goes, a little.
TXID, REMOVED = "committed batch", "rows to be removed"
GROWTH, FEW_ROWS = 1.1, 100

TITLES = {Kind.COMPACTION: "Compact", Kind.EXPIRY: "Expire", Kind.AUDIT: "Audit"}
CONTINUES = (
    "Readers and pipelines continue during a run. A run can be cancelled; what it has removed by then stays removed."
)

# What a page was drawn from, by subject: `{"state 'views'": {"committed batch": 12, "retention": "unlimited"}}`.
Seen = Mapping[str, Mapping[str, Any]]
Link = Callable[[Any], Any]


@dataclass(frozen=True)
class Confirmation:
    """A page between choosing an act and its execution.

    button: its label, empty if there is nothing to confirm. cancel_url: where Cancel leads. notes: what applies to all
    rows. headers, rows: a table of what happens to each. danger: the act cannot be undone. hidden: name and value of
    what the form submits again. seen: what it was drawn from, if the act is refused once that has changed.
    """

    title: str
    button: str
    cancel_url: str
    notes: Sequence[str] = ()
    headers: Sequence[str] = ()
    rows: Sequence[Sequence[Any]] = ()
    danger: bool = False
    hidden: Sequence[tuple[str, str]] = field(default_factory=list)
    seen: Seen = field(default_factory=dict)

    @property
    def posted(self) -> list[tuple[str, str]]:
        """Everything that its form submits."""
        seen = [(SEEN, signing.dumps(self.seen, salt=SEEN))] if self.seen else []
        return [*self.hidden, *seen, (CONFIRMED, "yes")]

    @property
    def labelled_rows(self) -> list[list[tuple[str, Any]]]:
        return [list(zip(self.headers, row, strict=True)) for row in self.rows]

    def refusal(self, request: HttpRequest) -> str:
        """Return why this page, drawn now, is no longer the one that was confirmed; empty if it is."""
        try:
            seen = signing.loads(request.POST.get(SEEN, ""), salt=SEEN, max_age=VALID)
        except signing.BadSignature:
            return "this page is older than an hour; look at it again, then confirm"
        for subject, now in self.seen.items():
            if moved := "; ".join(_moved(seen.get(subject, {}), now)):
                return f"{subject} has changed since this page was drawn: {moved}; look at it again"
        return ""


def is_confirmed(request: HttpRequest) -> bool:
    return CONFIRMED in request.POST


def _moved(seen: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for name, value in now.items():
        before: Any = seen.get(name)
        may_grow = name in MAY_GROW and None not in (before, value)
        if not (MAY_GROW[name](before, value) if may_grow else before == value):
            yield f"{name} was {before}, is {value} now"


MAY_GROW: Mapping[str, Callable[[int, int], bool]] = {
    TXID: lambda before, now: now >= before,
    REMOVED: lambda before, now: now <= max(before * GROWTH, before + FEW_ROWS),
}


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
    """Return the confirmation of a replay of what was found of each pipeline, up to its committed batch."""
    letters = sum(each.letters for each in found.values())
    return Confirmation(
        title=f"Replay {letters:,} dead letter{'' if letters == 1 else 's'}?",
        button="Replay" * bool(letters),
        cancel_url=cancel_url,
        notes=[
            "The driver reads them again with the pipeline's present code, in a batch of their own; each counts once. "
            "To take that back, rewind the pipeline to the batch before.",
            "What cannot be read now either stays a dead letter. Letters of states and those without a raw record "
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
    older = f"History older than {time_to_live(maintenance.keeps())}" if maintenance.keeps() else "Committed history"
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
        'What was never counted is found by "manage.py audit", which reads the source again.',
        "Readers and pipelines continue during a run.",
    ]


NOTES = {Kind.COMPACTION: _compaction_notes, Kind.EXPIRY: _expiry_notes, Kind.AUDIT: _audit_notes}
EFFECTS: dict[str, Callable[[Plan], str]] = {
    Kind.COMPACTION: _compaction_effect,
    Kind.EXPIRY: _expiry_effect,
    Kind.AUDIT: _audit_effect,
}
