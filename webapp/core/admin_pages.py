"""What the admin pages share: the sidebar, links between pages, and confirmation pages."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import Model
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.urls import NoReverseMatch, reverse
from django.utils.formats import localize
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.timezone import localtime
from unfold.admin import ModelAdmin

from tidegauge.webapp.core.confirmation import Confirmation, is_confirmed

# The sidebar and the front page, by model: title, icon, description.
GROUPS = {
    "Tidegauge": {
        "states.pipeline": ("Pipelines", "water", "Status and progress; pause and resume."),
        "states.state": ("States", "table_rows", "Size and retention; compact, expire, change."),
        "states.batch": ("Batches", "layers", "Rows, duration and attempts of each batch."),
        "states.deadletter": (
            "Dead letters",
            "mark_email_unread",
            "Input that could not be processed.",
        ),
        "states.maintenancerun": (
            "Maintenance runs",
            "cleaning_services",
            "Progress of compactions and expiries.",
        ),
        "tidegauge_saved_views.savedview": ("Saved views", "bookmarks", "Explorer settings that users have saved."),
    },
    "Alerts": {
        "tidegauge_alerts.alertrule": (
            "Rules",
            "notifications_active",
            "Which problems are reported to which addresses.",
        ),
        "tidegauge_alerts.alert": ("Alerts", "crisis_alert", "What the rules have found, and when it was over."),
        "tidegauge_alerts.silence": ("Silences", "notifications_off", "Times in which nobody is told."),
        "states.pipelinelimits": ("Limits", "speed", "Lag and share of dead letters that a pipeline may have."),
    },
    "Serving": {
        "saved_queries.savedquery": (
            "Saved queries",
            "query_stats",
            "Named reads with parameters: publish and withdraw.",
        ),
        "webhooks.webhook": ("Webhooks", "webhook", "Messages to other systems: where to, and about what."),
        "webhooks.delivery": ("Deliveries", "outbox", "Messages to webhooks, mails about alerts; send again."),
    },
    "Schedule": {
        "django_celery_beat.periodictask": (
            "Periodic tasks",
            "schedule",
            "Scheduled maintenance, and when it runs next.",
        ),
        "django_celery_beat.intervalschedule": ("Intervals", "timer", "Schedules such as every 10 minutes."),
        "django_celery_beat.crontabschedule": ("Crontabs", "calendar_month", "Schedules by hour and day."),
    },
    "Access": {
        "api_keys.apikey": ("API keys", "key", "Access for programs: create, rotate and revoke."),
        "api_keys.usagehour": ("Usage", "query_stats", "Requests, keys and bytes of API keys, by hour and state."),
        "auth.user": ("Users", "person", "Accounts of people."),
        "auth.group": ("Groups", "group", "Permissions: viewer, operator, admin and custom groups."),
        "tidegauge_boards.boardlink": (
            "Links to boards",
            "link",
            "Boards shown without an account: who, until when; end.",
        ),
        "audit.auditentry": ("Audit", "history", "Who changed what, and when."),
    },
}


def sidebar(request: HttpRequest) -> list[dict[str, Any]]:
    groups = [{"title": title, "items": _items(request, models)} for title, models in GROUPS.items()]
    return [group for group in groups if group["items"]]


def _items(request: HttpRequest, models: dict[str, tuple[str, str, str]]) -> list[dict[str, Any]]:
    return [
        {
            "title": title,
            "icon": icon,
            "description": description,
            "link": reverse(f"admin:{model.replace('.', '_')}_changelist"),
        }
        for model, (title, icon, description) in models.items()
        if request.user.has_perm(model.replace(".", ".view_"))
    ]


def link_to(model: type[Model], key: Any, text: Any = None) -> SafeString:
    """Return a link to the page of one row."""
    address = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_change", args=[key])
    return link(address, key if text is None else text)


def link_to_list(model: type[Model], text: Any, **filters: Any) -> SafeString:
    """Return a link to the rows of a model that match `filters`, written as field lookups."""
    return link(list_address(model, **filters), text)


def link_to_audit(kind: str, name: str) -> SafeString | None:
    """Return a link to the audit entries of one object, None if the audit is not installed."""
    try:
        address = reverse("admin:audit_auditentry_changelist")
    except NoReverseMatch:
        return None
    return link(f"{address}?{urlencode({'target__exact': f'{kind} {name}'})}", "audit entries")


def link(address: str, text: Any) -> SafeString:
    return format_html('<a class="text-link" href="{}">{}</a>', address, text)


def list_address(model: type[Model], **filters: Any) -> str:
    address = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
    return f"{address}?{urlencode(filters)}" if filters else address


def moment(at: datetime | None) -> str | None:
    """Return a time as the admin formats its own columns; otherwise it would show microseconds."""
    return None if at is None else localize(localtime(at))


def ask(admin: ModelAdmin, request: HttpRequest, confirmation: Confirmation) -> TemplateResponse | None:
    """Return the page that says what an action does; None once it is confirmed and nothing has changed since."""
    if is_confirmed(request):
        if not (refusal := confirmation.refusal(request)):
            return None
        messages.warning(request, refusal)
    return confirmation_page(admin, request, confirmation)


def confirmation_page(admin: ModelAdmin, request: HttpRequest, confirmation: Confirmation) -> TemplateResponse:
    """Return the page. Its form posts to the same address, with `confirmed` and the hidden values."""
    context = {
        **admin.admin_site.each_context(request),
        "opts": admin.opts,
        "title": confirmation.title,
        "confirmation": confirmation,
        "table": {"headers": list(confirmation.headers), "rows": [list(row) for row in confirmation.rows]},
        "hidden": confirmation.posted,
    }
    return TemplateResponse(request, "admin/states/confirmation.html", context)


def selection(request: HttpRequest, keys: Sequence[Any]) -> list[tuple[str, str]]:
    """Return the hidden values of an action: its name and the selected rows, so that rows added later are left out."""
    return [("action", request.POST["action"]), *((ACTION_CHECKBOX_NAME, str(key)) for key in keys)]
