"""Search results that are pages, or that act: pause, silence, acknowledge, and pages that ask before they act."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.urls import reverse

from tidegauge.state_backends import StateSpec
from tidegauge.webapp.accounts.permissions import (
    CREATE_KEYS,
    REPLAY_DEAD_LETTERS,
    REQUEST_MAINTENANCE,
    SILENCE,
    STEER_PIPELINES,
    VIEW_KEYS,
    key_scope,
)
from tidegauge.webapp.api.problems import PROBLEMS
from tidegauge.webapp.catalog.verdicts import verdict
from tidegauge.webapp.console.dashboard.search.headings import headings
from tidegauge.webapp.console.sql.run import may_run
from tidegauge.webapp.console.system_snapshot import pipeline_statuses
from tidegauge.webapp.notify.alerts.acknowledged import acknowledgements


@dataclass(frozen=True)
class Result:
    """title: its name. note: what it is, or where. more: further words by which it is found.

    Choosing it opens its address, or posts the name of a pipeline there, or copies a text.
    """

    title: str
    note: str
    address: str
    more: str = ""
    pipeline: str = ""
    copies: str = ""

    @property
    def is_button(self) -> bool:
        return bool(self.pipeline or self.copies)

    @property
    def searched(self) -> str:
        return f"{self.title} {self.note} {self.more}".lower()


def actions(request: HttpRequest, pipelines: Iterable[dict[str, Any]], states: Sequence[StateSpec]) -> Iterator[Result]:
    """Yield the actions that the user may take; those that need a confirmation are links to the page that asks."""
    may, scope = request.user.has_perm, key_scope(request)
    if scope.is_unrestricted and may(STEER_PIPELINES):
        for row in pipelines:
            verb = "resume" if row["is_paused"] else "pause"
            address = reverse(f"dashboard:{verb}", args=[row["name"]])
            yield Result(f"{verb.capitalize()} {row['name']}", "pipeline", address, pipeline=row["name"])
    if scope.is_unrestricted and may(SILENCE):
        troubled = {each.name: each for each in pipeline_statuses() if verdict(each).is_problem}
        for name in sorted(troubled.keys() - acknowledgements(troubled.values()).keys()):
            address, more = reverse("dashboard:acknowledge"), "incident alert problem"
            yield Result(f"Acknowledge {name}", "pipeline", address, more, pipeline=name)
        for row in pipelines:
            address, more = reverse("dashboard:silence"), "silence mute messages alerts incident"
            yield Result(f"Silence {row['name']} for an hour", "pipeline", address, more, pipeline=row["name"])
    if scope.is_unrestricted and may(REPLAY_DEAD_LETTERS):
        for row in pipelines:
            if row["has_dead_letters"]:
                address = reverse("dashboard:dead_letters", args=[row["name"]])
                yield Result(f"Replay dead letters of {row['name']}", "pipeline", address, "retry")
    if not scope.key_prefix and may(REQUEST_MAINTENANCE):
        for spec in states:
            args = [spec.name]
            yield Result(f"Compact {spec.name}", "state", reverse("dashboard:compact", args=args), "compaction run")
            if spec.ttl:
                yield Result(f"Expire {spec.name}", "state", reverse("dashboard:expire", args=args), "expiry ttl run")
            if spec.changelog:
                yield Result(f"Audit {spec.name}", "state", reverse("dashboard:audit", args=args), "compare run")
    if scope.is_unrestricted and request.user.has_perms([VIEW_KEYS, CREATE_KEYS]):
        yield Result("New API key", "access", reverse("dashboard:create_key"), "create token")


def pages(request: HttpRequest, pipelines: Iterable[str]) -> Iterator[Result]:
    """Yield the pages that the user may open."""
    user, is_whole = request.user, key_scope(request).is_unrestricted
    problems = reverse("dashboard:problems")
    yield Result("Health", "all pipelines and incidents", reverse("dashboard:index"), "home processes replicas")
    yield Result("Pipelines", "all pipelines", reverse("dashboard:pipelines"), "list verdicts")
    yield Result("Explore", "questions about a state", reverse("dashboard:explore_states"), "ask chart group compare")
    yield Result("States", "all states and their pipelines", reverse("dashboard:states"), "list tables keys")
    yield Result("Lineage", "sources, pipelines, states, consumers", reverse("dashboard:lineage"), "graph dependencies")
    yield Result("Alerts", "open and past, silences, rules", reverse("dashboard:alerts"), "notifications messages mail")
    yield Result("Saved views", "questions of the explorer", reverse("dashboard:views"), "bookmarks explore named")
    yield Result("Boards", "saved views beside each other", reverse("dashboard:boards"), "dashboards tiles share embed")
    if may_run(request):
        yield Result("SQL", "a statement over the live views", reverse("dashboard:sql"), "query select")
    yield Result("Maintenance", "runs and their schedule", reverse("dashboard:maintenance"), "compaction expiry audit")
    yield Result("API docs", "reference of the REST API", reverse("docs"), "openapi swagger documentation")
    yield Result("Problems", "what each error of the API means", problems, "errors documentation")
    if is_whole and user.has_perm(VIEW_KEYS):
        yield Result("API keys", "who may call the API", reverse("dashboard:keys"), "tokens secrets access")
    if is_whole and user.is_staff:
        yield Result("Admin", "users, groups, saved queries, webhooks", reverse("admin:index"), "administration")
    for name in pipelines:
        if is_whole and user.has_perm(STEER_PIPELINES):
            more, address = (
                "reprocess rewind rebuild audit restore-checkpoint skip-lost",
                reverse("dashboard:acts", args=[name]),
            )
            yield Result(f"Operations on {name}", "pipeline", address, more)
        yield Result(f"Batches of {name}", "pipeline", reverse("dashboard:batches", args=[name]))
        if is_whole:
            yield Result(f"Dead letters of {name}", "pipeline", reverse("dashboard:dead_letters", args=[name]))
    for code, problem in PROBLEMS.items():
        yield Result(code, f"{problem.status}, {problem.title}", f"{problems}#{code}", "problem error")


def documentation() -> Iterator[Result]:
    """Yield the sections of the documentation, if the address of its site is set."""
    if settings.TIDEGAUGE_DOCS_URL:
        for heading in headings():
            note = "documentation" if heading.title == heading.page else heading.page
            yield Result(heading.title, note, f"{settings.TIDEGAUGE_DOCS_URL}/{heading.path}")
