"""The strip at the top of every page: how many pipelines have which problem, among those that the user sees.

A problem that somebody has acknowledged does not count: it needs nobody, and the strip says how many there are.
Unrestricted users also see if the schedule has stopped.

The title of the page begins with the same text, so that a tab in the background shows it.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from django.http import HttpRequest
from django.urls import reverse

from tidegauge.webapp.accounts.permissions import key_scope
from tidegauge.webapp.catalog.pipeline_status import PipelineStatus
from tidegauge.webapp.catalog.verdicts import WORST_FIRST, verdict
from tidegauge.webapp.catalog.visible import of_request
from tidegauge.webapp.console.system_snapshot import pipeline_statuses
from tidegauge.webapp.core.writing import share
from tidegauge.webapp.notify.alerts.acknowledged import acknowledgements
from tidegauge.webapp.notify.alerts.history import silent_since

WORDS = {"stale": "lagging"}


@dataclass(frozen=True)
class Mark:
    """The pipelines of one verdict, or the schedule. address: of the pipeline; of the overview if there are several."""

    text: str
    tone: str
    names: str
    address: str


@dataclass(frozen=True)
class Strip:
    """pipelines: how many the user sees. needs: the names of those that need somebody, sorted.

    acknowledged: those whose problem is acknowledged; None without any.
    """

    marks: tuple[Mark, ...]
    pipelines: int
    needs: tuple[str, ...]
    acknowledged: Mark | None

    @property
    def troubled(self) -> int:
        return len(self.needs)

    @property
    def is_bad(self) -> bool:
        return any(mark.tone == "bad" for mark in self.marks)

    @property
    def title(self) -> str:
        return " · ".join(mark.text for mark in self.marks)


def strip(request: HttpRequest) -> Strip:
    """Return the strip for a signed-in user; computed once per request."""
    found: Strip | None = getattr(request, "_strip", None)
    return keep(request, of_request(request).of_pipelines(pipeline_statuses())) if found is None else found


def keep(request: HttpRequest, pipelines: Iterable[PipelineStatus]) -> Strip:
    """Make the strip from all pipelines that the user sees, which the page has read, to avoid reading them again."""
    made = _strip(request, list(pipelines))
    request._strip = made  # type: ignore[attr-defined]
    return made


def _strip(request: HttpRequest, pipelines: list[PipelineStatus]) -> Strip:
    is_whole = key_scope(request).is_unrestricted
    troubled = [pipeline for pipeline in pipelines if verdict(pipeline).is_problem]
    # Who takes care is not for a restricted reader.
    taken = acknowledgements(troubled) if troubled and is_whole else {}
    by_verdict: dict[str, list[PipelineStatus]] = defaultdict(list)
    left = [pipeline for pipeline in troubled if pipeline.name not in taken]
    for pipeline in left:
        by_verdict[verdict(pipeline).name].append(pipeline)
    marks = [_mark(name, by_verdict[name]) for name in WORST_FIRST if name in by_verdict]
    if is_whole and silent_since():
        marks.append(_schedule())
    needs = tuple(sorted(pipeline.name for pipeline in left))
    return Strip(tuple(marks), len(pipelines), needs, _acknowledged(sorted(taken)))


def _acknowledged(names: list[str]) -> Mark | None:
    return Mark(f"{len(names)} acknowledged", "calm", ", ".join(names), reverse("dashboard:index")) if names else None


def _schedule() -> Mark:
    text = "The schedule has stopped: no maintenance, no alerts, no history"
    return Mark("schedule stopped", "watch", text, reverse("dashboard:maintenance"))


def _mark(name: str, pipelines: list[PipelineStatus]) -> Mark:
    only = pipelines[0] if len(pipelines) == 1 else None
    text = f"{len(pipelines)} {WORDS.get(name, name)}"
    if only and name == "rejecting":
        text = f"{share(only.rejected_share)} rejected"
    address = reverse("dashboard:pipeline", args=[only.name]) if only else reverse("dashboard:index")
    return Mark(text, verdict(pipelines[0]).tone, ", ".join(pipeline.name for pipeline in pipelines), address)


def title_prefix(request: HttpRequest) -> str:
    """Return the beginning of the title of an admin page."""
    title = strip(request).title if request.user.is_authenticated else ""
    return f"{title} —" if title else ""
