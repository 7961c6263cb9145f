"""Users, groups and API keys in the admin."""

from django.contrib import admin
from django.http import HttpRequest

from tidegauge.webapp.accounts.admin import api_keys, usage, users
from tidegauge.webapp.accounts.permissions import key_scope

__all__ = ["api_keys", "usage", "users"]

# The admin shows all states, keys and messages, so only people without a restriction may use it.
_has_permission = admin.site.has_permission


def _is_unrestricted(request: HttpRequest) -> bool:
    return _has_permission(request) and key_scope(request).is_unrestricted


admin.site.has_permission = _is_unrestricted  # type: ignore[method-assign]
