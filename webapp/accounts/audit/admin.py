"""The audit log in the admin, read-only, and a mixin that records edits made in the admin.

Admins of models that our services do not write (users, groups, the schedule) use AuditedEdits. The entry is written in
the transaction of the edit if Django uses one, and has only the values that `audited` returns.
"""

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

from django.contrib import admin
from django.db import transaction
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from unfold.admin import ModelAdmin
from unfold.decorators import display

from tidegauge.webapp.accounts.audit.models import AuditEntry
from tidegauge.webapp.accounts.audit.services import record
from tidegauge.webapp.core.admin import ReadOnlyAdmin

COLOURS = {
    "board": "info",
    "key": "warning",
    "maintenance": "info",
    "pipeline": "info",
    "query": "info",
    "sql": "info",
    "state": "warning",
    "user": "success",
    "view": "info",
    "webhook": "info",
}


class AuditedEdits(ModelAdmin):
    """A mixin; it comes before the admin class."""

    def audited(self, instance: Any) -> dict[str, Any]:
        """Return the values of an edited row that are recorded in its entry, besides its name."""
        return {}

    def record_edit(self, by: str, act: str, instance: Model, **detail: Any) -> None:
        """Write the entry. by: the actor. An admin may override it for another action or target."""
        target = f"{instance._meta.verbose_name} {instance}"
        record(f"admin.{act}", target, by=by, **detail)

    def log_addition(self, request: HttpRequest, obj: Model, message: Any) -> Any:
        entry = super().log_addition(request, obj, message)
        self.record_edit(request.user.get_username(), "add", obj, **self.audited(obj))
        return entry

    def log_change(self, request: HttpRequest, obj: Model, message: Any) -> Any:
        entry = super().log_change(request, obj, message)
        self.record_edit(
            request.user.get_username(), "change", obj, changes=entry.get_change_message(), **self.audited(obj)
        )
        return entry

    def log_deletions(self, request: HttpRequest, queryset: QuerySet[Any]) -> Any:
        for instance in queryset:
            self.record_edit(request.user.get_username(), "delete", instance)
        return super().log_deletions(request, queryset)

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """Record the rows of an action, and require the change permission if the action requires none."""
        actions: dict[str, Any] = dict(super().get_actions(request))
        may_change = self.has_change_permission(request)
        return {
            name: (_audited(self, name, action), *rest)
            for name, (action, *rest) in actions.items()
            if may_change or hasattr(action, "allowed_permissions")
        }

    def record_action(self, request: HttpRequest, act: str, rows: Iterable[Model]) -> None:
        for instance in rows:
            self.record_edit(request.user.get_username(), act, instance)


def _audited(admin: AuditedEdits, name: str, action: Callable[..., Any]) -> Callable[..., Any]:
    if name == "delete_selected":
        return action  # log_deletions records it after the confirmation

    @wraps(action)
    def audited(model_admin: Any, request: HttpRequest, queryset: QuerySet[Any]) -> Any:
        rows = list(queryset)
        with transaction.atomic():
            response = action(model_admin, request, queryset)
            admin.record_action(request, name, rows)
        return response

    return audited


@admin.register(AuditEntry)
class AuditEntryAdmin(ReadOnlyAdmin):
    list_display = ["at", "actor", "shown_action", "target", "detail"]
    list_filter = ["action", "actor", "at"]
    search_fields = ["target", "actor", "=request_id"]
    fields = ["at", "actor", "action", "target", "detail", "request_id"]
    # Saves a count over the whole table.
    show_full_result_count = False

    @display(description="Action", ordering="action", label=COLOURS)
    def shown_action(self, entry):
        return entry.action.partition(".")[0], entry.action
