"""Links to boards in the admin, where they can be viewed and deleted, which ends them."""

from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest
from unfold.decorators import display

from tidegauge.webapp.accounts.audit.admin import AuditedEdits
from tidegauge.webapp.console.boards.models import BoardLink
from tidegauge.webapp.core.admin import ReadOnlyAdmin


@admin.register(BoardLink)
class BoardLinkAdmin(AuditedEdits, ReadOnlyAdmin):
    list_display = ["board", "owner", "kind", "created_at", "expires_at", "revoked_at"]
    list_filter = ["kind"]
    list_select_related = ["board__owner"]
    search_fields = ["board__name", "board__owner__username"]
    fields = ["board", "owner", "kind", "created_at", "expires_at", "revoked_at"]

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return request.user.has_perm("tidegauge_boards.delete_boardlink")

    @display(description="Owner", ordering="board__owner__username")
    def owner(self, link: BoardLink) -> str:
        return link.board.owner.get_username()
