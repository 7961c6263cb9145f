"""Base classes of the admin's read-only and very long lists, and the redirect from its login page to ours."""

from typing import Any, cast

from django.contrib import admin
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db import connections
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.functional import cached_property
from unfold.admin import ModelAdmin

# A list counts and pages only this many rows; filters and search reach older ones.
COUNTED_ROWS = 10_000


class ReadOnlyAdmin(ModelAdmin):
    """Shows rows that pipelines and services write, and that people must not edit."""

    list_fullwidth = True
    list_per_page = 50

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


class NewestRows(Paginator):
    """Pages of the first COUNTED_ROWS rows, so that a table of millions is never counted."""

    @cached_property
    def count(self) -> int:
        listed = cast("QuerySet[Any]", self.object_list)
        statement, parameters = listed.order_by().values("pk")[:COUNTED_ROWS].query.sql_with_params()
        with connections[listed.db].cursor() as cursor:
            cursor.execute(f"SELECT count(*) FROM ({statement}) listed", parameters)  # noqa: S608 (Django's own)
            return int(cursor.fetchone()[0])


class LongListAdmin(ReadOnlyAdmin):
    """A list of possibly millions of rows: counted up to COUNTED_ROWS, and not a second time without its filters."""

    paginator = NewestRows
    show_full_result_count = False
    ordering = ["-id"]


def sign_in(request: HttpRequest) -> HttpResponse:
    """Redirect to the page where people sign in. A signed-in user goes to the admin, or gets a 403 if not allowed."""
    if admin.site.has_permission(request):
        return HttpResponseRedirect(reverse("admin:index"))
    if request.user.is_authenticated:
        raise PermissionDenied("your account may not use the admin")
    return redirect_to_login(request.GET.get("next") or reverse("admin:index"), reverse("login"))
