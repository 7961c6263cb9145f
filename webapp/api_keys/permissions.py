"""What a request may do: an API key what its scopes say; a session may read, and maintain if it is staff's."""

from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from webapp.api_keys.models import Scope


class HasScope(BasePermission):
    """Asks for `read`, or for what the view's `scopes` name for the method: `scopes = {"POST": "maintain"}`."""

    def has_permission(self, request: Request, view) -> bool:
        scope = getattr(view, "scopes", {}).get(request.method, Scope.READ)
        if request.auth is not None:
            self.message = (
                f"this API key lacks the scope {str(scope)!r}; it has {', '.join(request.auth.scopes) or 'none'}"
            )
            return request.auth.allows(scope)
        self.message = "only staff may do this"
        return bool(
            request.user and (request.user.is_staff if scope == Scope.MAINTAIN else request.user.is_authenticated)
        )
