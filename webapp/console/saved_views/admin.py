"""Saved views in the admin, where they can be viewed and deleted, but not edited."""

import json
from typing import Any

from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest
from django.utils.safestring import SafeString
from unfold.decorators import display

from tidegauge.webapp.accounts.audit.admin import AuditedEdits
from tidegauge.webapp.console.saved_views.models import SavedView
from tidegauge.webapp.core.admin import ReadOnlyAdmin
from tidegauge.webapp.core.admin_pages import link, link_to_audit


@admin.register(SavedView)
class SavedViewAdmin(AuditedEdits, ReadOnlyAdmin):
    list_display = ["name", "owner", "state", "page", "is_shared", "changed_at"]
    list_filter = ["is_shared", "page"]
    list_select_related = ["owner"]
    search_fields = ["name", "state", "owner__username"]
    fields = ["name", "owner", "state", "asked", "is_shared", "created_at", "changed_at", "audit"]
    view_on_site = False  # because the dashboard does not open the private views of others

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return request.user.has_perm("tidegauge_saved_views.delete_savedview")

    @display(description="Question")
    def asked(self, view: SavedView) -> SafeString:
        return link(view.address, f"{view.page} {json.dumps(view.question, ensure_ascii=False)}")

    @display(description="Audit")
    def audit(self, view: SavedView) -> SafeString | None:
        return link_to_audit("saved view", view.name)

    def audited(self, instance: Any) -> dict[str, Any]:
        return {"state": instance.state}
