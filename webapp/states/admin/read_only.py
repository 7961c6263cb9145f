"""What the admin pages over the library's tables have in common: they show, and link to each other."""

from typing import Any
from urllib.parse import urlencode

from django.db.models import Model
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.admin import ModelAdmin


class ReadOnlyAdmin(ModelAdmin):
    """Rows that pipelines and services write, never a form."""

    list_fullwidth = True

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


def link_to(model: type[Model], key: Any, text: Any = None) -> SafeString:
    """Return a link to the page of one row."""
    address = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_change", args=[key])
    return format_html('<a class="text-link" href="{}">{}</a>', address, key if text is None else text)


def link_to_list(model: type[Model], text: Any, **filters: Any) -> SafeString:
    """Return a link to the rows of a model that pass `filters`, written as lookups."""
    return format_html('<a class="text-link" href="{}">{}</a>', list_address(model, **filters), text)


def list_address(model: type[Model], **filters: Any) -> str:
    address = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
    return f"{address}?{urlencode(filters)}" if filters else address
