"""The sidebar of the admin: what a person may see, in the order it is looked for."""

from typing import Any

from django.http import HttpRequest
from django.urls import reverse

GROUPS = {
    "Tidemark": {
        "states.pipeline": ("Pipelines", "water"),
        "states.state": ("States", "table_rows"),
        "states.batch": ("Batches", "layers"),
        "states.deadletter": ("Dead letters", "mark_email_unread"),
        "states.maintenancerun": ("Maintenance runs", "cleaning_services"),
    },
    "Schedule": {
        "django_celery_beat.periodictask": ("Periodic tasks", "schedule"),
        "django_celery_beat.intervalschedule": ("Intervals", "timer"),
        "django_celery_beat.crontabschedule": ("Crontabs", "calendar_month"),
    },
    "Who may come in": {
        "api_keys.apikey": ("API keys", "key"),
        "auth.user": ("Users", "person"),
        "auth.group": ("Groups", "group"),
    },
}


def sidebar(request: HttpRequest) -> list[dict[str, Any]]:
    dashboard = {"items": [{"title": "Dashboard", "icon": "monitoring", "link": "/", "active": False}]}
    groups = [{"title": title, "separator": True, "items": _items(request, models)} for title, models in GROUPS.items()]
    return [dashboard, *(group for group in groups if group["items"])]


def _items(request: HttpRequest, models: dict[str, tuple[str, str]]) -> list[dict[str, Any]]:
    return [
        {"title": title, "icon": icon, "link": reverse(f"admin:{model.replace('.', '_')}_changelist")}
        for model, (title, icon) in models.items()
        if request.user.has_perm(model.replace(".", ".view_"))
    ]
