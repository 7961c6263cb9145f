"""The sidebar and the front page of the admin: what a person may see, in the order it is looked for."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, cast
from urllib.parse import urlencode

from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.paginator import Paginator
from django.db import connections
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.urls import NoReverseMatch, reverse
from django.utils.formats import localize
from django.utils.functional import cached_property
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.timezone import localtime
from unfold.admin import ModelAdmin

# Model: title, icon, and what is found there.
GROUPS = {
    "Tidemark": {
        "states.pipeline": ("Pipelines", "water", "Who drives them, how far they are; pause and resume."),
        "states.state": ("States", "table_rows", "What is kept and for how long; compact, expire, change."),
        "states.batch": ("Batches", "layers", "What each brought, how long it took, and how often it was tried."),
        "states.deadletter": ("Dead letters", "mark_email_unread", "Input that could not be counted, and why."),
        "states.maintenancerun": ("Maintenance runs", "cleaning_services", "Compactions and expiries, one by one."),
    },
    "Schedule": {
        "django_celery_beat.periodictask": ("Periodic tasks", "schedule", "What runs by itself, and when next."),
        "django_celery_beat.intervalschedule": ("Intervals", "timer", "Every so often."),
        "django_celery_beat.crontabschedule": ("Crontabs", "calendar_month", "At certain hours and days."),
    },
    "Who may come in": {
        "api_keys.apikey": ("API keys", "key", "For programs: made, rotated and revoked."),
        "auth.user": ("Users", "person", "For people."),
        "auth.group": ("Groups", "group", "Viewer, operator, admin, and your own."),
        "audit.auditentry": ("Audit", "history", "Who did what, and when."),
    },
}


def sidebar(request: HttpRequest) -> list[dict[str, Any]]:
    dashboard = {"items": [{"title": "Dashboard", "icon": "monitoring", "link": "/", "active": False}]}
    groups = [{"title": title, "separator": True, "items": _items(request, models)} for title, models in GROUPS.items()]
    return [dashboard, *(group for group in groups if group["items"])]


def _items(request: HttpRequest, models: dict[str, tuple[str, str, str]]) -> list[dict[str, Any]]:
    return [
        {"title": title, "icon": icon, "says": says, "link": reverse(f"admin:{model.replace('.', '_')}_changelist")}
        for model, (title, icon, says) in models.items()
        if request.user.has_perm(model.replace(".", ".view_"))
    ]


# What the admin pages over the library's tables have in common: they show, and link to each other.


# Rows that a list counts, and so leads to: who wants to see more than the newest of them narrows the list down.
COUNTED_ROWS = 10_000

UNITS = {"day": 86_400, "hour": 3_600, "minute": 60, "second": 1}


class ReadOnlyAdmin(ModelAdmin):
    """Rows that pipelines and services write, never a form."""

    list_fullwidth = True

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


class NewestRows(Paginator):
    """Pages over the first COUNTED_ROWS rows of a list: a table of millions is never counted."""

    @cached_property
    def count(self) -> int:
        listed = cast("QuerySet[Any]", self.object_list)
        statement, parameters = listed.order_by().values("pk")[:COUNTED_ROWS].query.sql_with_params()
        with connections[listed.db].cursor() as cursor:
            cursor.execute(f"SELECT count(*) FROM ({statement}) listed", parameters)  # noqa: S608 (Django's own)
            return int(cursor.fetchone()[0])


class LongListAdmin(ReadOnlyAdmin):
    """Rows that may be millions: their list counts as far as it leads, and not a second time without its filters."""

    paginator = NewestRows
    show_full_result_count = False
    ordering = ["-id"]


def link_to(model: type[Model], key: Any, text: Any = None) -> SafeString:
    """Return a link to the page of one row."""
    address = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_change", args=[key])
    return link(address, key if text is None else text)


def link_to_list(model: type[Model], text: Any, **filters: Any) -> SafeString:
    """Return a link to the rows of a model that pass `filters`, written as lookups."""
    return link(list_address(model, **filters), text)


def link_to_audit(kind: str, name: str) -> SafeString | None:
    """Return a link to what people have done to something, None where there is no such list."""
    try:
        address = reverse("admin:audit_auditentry_changelist")
    except NoReverseMatch:
        return None
    return link(f"{address}?{urlencode({'target__exact': f'{kind} {name}'})}", "who did what to it")


def link(address: str, text: Any) -> SafeString:
    return format_html('<a class="text-link" href="{}">{}</a>', address, text)


def list_address(model: type[Model], **filters: Any) -> str:
    address = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
    return f"{address}?{urlencode(filters)}" if filters else address


def moment(at: datetime | None) -> str | None:
    """Return a time as the admin's own columns show it; a page shows what else it is given to the microsecond."""
    return None if at is None else localize(localtime(at))


def time_to_live(ttl: timedelta | None) -> str:
    """Return how long rows are kept, in words: 400 days, 1 day 12 hours, for ever."""
    if ttl is None:
        return "for ever"
    left, words = ttl.total_seconds(), []
    for unit, seconds in UNITS.items():
        count, left = divmod(left, seconds)
        if count:
            words.append(f"{count:,.0f} {unit}{'' if count == 1 else 's'}")
    return " ".join(words) or f"{left:g} seconds"


# A page between an action and its deed: what will happen, row by row, and a way back.


CONFIRMED = "confirmed"


@dataclass(frozen=True)
class Question:
    """title: what is asked. says: what happens to all. table: what happens to each. verb: on the button.

    danger: something is lost that cannot be had again. hidden: what the form sends once more. back: where `no` leads.
    """

    title: str
    verb: str
    back: str
    says: Sequence[str] = ()
    headers: Sequence[str] = ()
    rows: Sequence[Sequence[Any]] = ()
    danger: bool = False
    hidden: Sequence[tuple[str, str]] = field(default_factory=list)


def is_confirmed(request: HttpRequest) -> bool:
    return CONFIRMED in request.POST


def ask(admin: ModelAdmin, request: HttpRequest, question: Question) -> TemplateResponse:
    """Return the page. Its form posts to where the request came to, with `confirmed` beside what is hidden."""
    context = {
        **admin.admin_site.each_context(request),
        "opts": admin.opts,
        "title": question.title,
        "question": question,
        "table": {"headers": list(question.headers), "rows": [list(row) for row in question.rows]},
        "hidden": [*question.hidden, (CONFIRMED, "yes")],
    }
    return TemplateResponse(request, "admin/states/confirmation.html", context)


def selection(request: HttpRequest, keys: Sequence[Any]) -> list[tuple[str, str]]:
    """Return what an action's form sends: the action and the rows it was asked for, as they were when it was asked."""
    return [("action", request.POST["action"]), *((ACTION_CHECKBOX_NAME, str(key)) for key in keys)]
