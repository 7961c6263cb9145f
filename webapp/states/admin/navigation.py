"""The sidebar and the front page of the admin: what a person may see, in the order it is looked for."""

from typing import Any

from django.http import HttpRequest
from django.urls import reverse

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
