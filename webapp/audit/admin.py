"""The audit in the admin: to be read, searched and narrowed down, and nothing else."""

from django.contrib import admin
from django.http import HttpRequest
from unfold.admin import ModelAdmin
from unfold.decorators import display

from webapp.audit.models import AuditEntry

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
