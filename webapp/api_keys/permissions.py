"""What a request may do: an API key what its scopes say; a session may read, and maintain if it is staff's."""

from typing import cast

from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from webapp.api_keys.models import ApiKey, Scope


class HasScope(BasePermission):
    """Asks for `read`, or for what the view's `scopes` name for the method: `scopes = {"POST": "maintain"}`."""

    def has_permission(self, request: Request, view) -> bool:
        scope = getattr(view, "scopes", {}).get(request.method, Scope.READ)
        key = api_key(request)
        if key is not None:
            self.message = f"this API key lacks the scope {str(scope)!r}; it has {', '.join(key.scopes) or 'none'}"
            return key.allows(scope)
        self.message = "only staff may do this"
        return request.user.is_staff if scope == Scope.MAINTAIN else request.user.is_authenticated


def api_key(request: Request) -> ApiKey | None:
    """Return the key that the request came with; None for a session."""
    return cast(ApiKey | None, request.auth)
