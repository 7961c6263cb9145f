"""Attention: which pipelines a person should look at first."""

from collections.abc import Iterable

from webapp.states.selectors import PipelineStatus

# How the statuses of drivers look, and how bad they are: first the worst.
TONES = {
    "failed": "bad",
    "lost": "bad",
    "restarting": "watch",
    "starting": "watch",
    "paused": "watch",
    "running": "good",
    "finished": "calm",
    "stopped": "calm",
    "never started": "calm",
}
RANKS = ["bad", "watch", "good", "calm"]


def worst_first(pipelines: Iterable[PipelineStatus]) -> list[PipelineStatus]:
    """Return those in trouble first, then those with something to watch; equals by name, so that none moves idly."""
    return sorted(pipelines, key=lambda pipeline: (RANKS.index(urgency(pipeline)), pipeline.name))


def urgency(pipeline: PipelineStatus) -> str:
    """Return bad, watch, good or calm: the status, or worse where figures or a failed reprocess ask for a look."""
    anew = pipeline.reprocess
    if anew is not None and tone(anew.status) == "bad":
        return "bad"
    said = tone(pipeline.status)
    wants_a_look = pipeline.failures or pipeline.dropped or (pipeline.pending or {}).get("alarm")
    return "watch" if said in ("good", "calm") and wants_a_look else said


def tone(status: str) -> str:
    return TONES.get(status, "watch")
