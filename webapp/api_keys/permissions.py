"""What a request may do: an API key what its scopes say; a session may read, and else what its user's groups allow."""

from typing import cast

from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from webapp.api_keys.models import ApiKey, Scope

ASK_FOR_MAINTENANCE = "states.add_maintenancerun"
STEER_PIPELINES = "states.change_pipeline"


class HasScope(BasePermission):
    """Asks for `read`, or for what the view's `scopes` name for the method: `scopes = {"POST": "maintain"}`.

    From a session `maintain` asks for the view's `permission`, so that the API and the admin agree on who may do it.
    """

    def has_permission(self, request: Request, view) -> bool:
        scope = getattr(view, "scopes", {}).get(request.method, Scope.READ)
        key = api_key(request)
        if key is not None:
            self.message = f"this API key lacks the scope {str(scope)!r}; it has {', '.join(key.scopes) or 'none'}"
            return key.allows(scope)
        if scope == Scope.READ:
            return request.user.is_authenticated
        permission = getattr(view, "permission", ASK_FOR_MAINTENANCE)
        self.message = f"you lack the permission {permission!r}; the groups operator and admin have it"
        return request.user.is_authenticated and request.user.has_perm(permission)


def api_key(request: Request) -> ApiKey | None:
    """Return the key that the request came with; None for a session."""
    return cast(ApiKey | None, request.auth)
