"""Edits in the admin, noted in the audit table: for the admins of what no service of ours writes.

In the transaction of the edit where Django has one. Values stay out, but for what `audited` names.
"""

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

from django.contrib.admin import ModelAdmin
from django.db import transaction
from django.db.models import Model, QuerySet
from django.http import HttpRequest

from webapp.audit.services import record


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
