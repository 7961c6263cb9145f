"""Edits in the admin, noted in the audit table: for the admins of what no service of ours writes.

In the transaction of the edit where Django has one. Values stay out, but for what `audited` names.
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

from webapp.accounts.audit.models import AuditEntry
from webapp.accounts.audit.services import record


class AuditedEdits(ModelAdmin):
    """Comes before the admin class it is mixed into."""

    def audited(self, instance: Any) -> dict[str, Any]:
        """Return what is worth noting of a row beyond its name, as it is after the edit."""
        return {}

    def record_edit(self, request: HttpRequest, act: str, instance: Model, **detail: Any) -> None:
        """Write the row; for an admin that has other words for what is done to what."""
        what = f"{instance._meta.verbose_name} {instance}"
        record(f"admin.{act}", what, by=request.user.get_username(), **detail)

    def log_addition(self, request: HttpRequest, obj: Model, message: Any) -> Any:
        entry = super().log_addition(request, obj, message)
        self.record_edit(request, "add", obj, **self.audited(obj))
        return entry

    def log_change(self, request: HttpRequest, obj: Model, message: Any) -> Any:
        entry = super().log_change(request, obj, message)
        self.record_edit(request, "change", obj, changes=entry.get_change_message(), **self.audited(obj))
        return entry

    def log_deletions(self, request: HttpRequest, queryset: QuerySet[Any]) -> Any:
        for instance in queryset:
            self.record_edit(request, "delete", instance)
        return super().log_deletions(request, queryset)

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """Note what an action is done to; and ask for the right to change where an action asks for none itself."""
        actions: dict[str, Any] = dict(super().get_actions(request))
        may_change = self.has_change_permission(request)
        return {
            name: (_noting(self, name, action), *rest)
            for name, (action, *rest) in actions.items()
            if may_change or hasattr(action, "allowed_permissions")
        }

    def note(self, request: HttpRequest, act: str, rows: Iterable[Model]) -> None:
        for instance in rows:
            self.record_edit(request, act, instance)


def _noting(admin: AuditedEdits, name: str, action: Callable[..., Any]) -> Callable[..., Any]:
    if name == "delete_selected":
        return action  # log_deletions does it, once it is confirmed.

    @wraps(action)
    def noted(model_admin: Any, request: HttpRequest, queryset: QuerySet[Any]) -> Any:
        rows = list(queryset)
        with transaction.atomic():
            answer = action(model_admin, request, queryset)
            admin.note(request, name, rows)
        return answer

    return noted


# The audit in the admin: to be read, searched and narrowed down, and nothing else.


COLOURS = {"key": "warning", "maintenance": "info", "pipeline": "info", "state": "warning", "user": "success"}


@admin.register(AuditEntry)
class AuditEntryAdmin(ModelAdmin):
    list_display = ["at", "actor", "shown_action", "target", "detail"]
    list_filter = ["action", "actor", "at"]
    search_fields = ["target", "actor", "=request_id"]
    fields = ["at", "actor", "action", "target", "detail", "request_id"]
    list_fullwidth = True
    # One count less on the way to a page of a long table.
    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: AuditEntry | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: AuditEntry | None = None) -> bool:
        return False

    @display(description="Action", ordering="action", label=COLOURS)
    def shown_action(self, entry):
        return entry.action.partition(".")[0], entry.action
