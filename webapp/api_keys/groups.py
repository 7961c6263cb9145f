"""The three groups that people are put into: viewer, operator and admin, each with what the one before it may do.

Made, and made right again, after each migration; for another cut, make a group of your own. Whoever signs in may look
at the dashboard and read the API, in a group or not; the pages of the admin also ask for the staff status.
"""

from typing import Any

from django.contrib.auth.models import Group, Permission

VIEWER = {
    "states": ["view_pipeline", "view_state", "view_batch", "view_deadletter", "view_maintenancerun"],
    "django_celery_beat": [
        "view_periodictask", "view_intervalschedule", "view_crontabschedule", "view_clockedschedule",
        "view_solarschedule",
    ],
}  # fmt: skip
# What is added, changed and deleted to edit the schedule.
SCHEDULE = [
    f"{act}_{model}"
    for model in ("periodictask", "intervalschedule", "crontabschedule", "clockedschedule", "solarschedule")
    for act in ("add", "change", "delete")
]
OPERATOR = {
    "states": [*VIEWER["states"], "add_maintenancerun", "change_pipeline", "change_state"],
    "django_celery_beat": [*VIEWER["django_celery_beat"], *SCHEDULE],
}
ADMIN = OPERATOR | {
    "api_keys": ["view_apikey", "add_apikey", "change_apikey"],
    "auth": [f"{act}_{model}" for model in ("user", "group") for act in ("view", "add", "change", "delete")],
    "audit": ["view_auditentry"],
}
GROUPS = {"viewer": VIEWER, "operator": OPERATOR, "admin": ADMIN}


def ensure_groups(using: str = "default", **signal: Any) -> None:
    for name, permissions in GROUPS.items():
        group, _ = Group.objects.using(using).get_or_create(name=name)
        group.permissions.set(_found(permissions, using))


def _found(permissions: dict[str, list[str]], using: str) -> list[Permission]:
    return [
        permission
        for app, codenames in permissions.items()
        for permission in Permission.objects.using(using).filter(content_type__app_label=app, codename__in=codenames)
    ]
