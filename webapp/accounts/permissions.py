"""What an API key is confined to: some states, some leading parts of their keys.

A refusal names what was asked and what the API key holds, and is the same whether the thing exists or not.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from django.core.exceptions import PermissionDenied
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from state_backends import StateSpec
from state_backends.errors import KeyShapeError
from state_backends.row import Key
from webapp.accounts.models import ApiKey, Scope


class OutsideError(PermissionDenied):
    """What was asked lies outside of the API key's confinement. index: of the key that does, if it is about one."""

    def __init__(self, message: str, index: int | None = None) -> None:
        super().__init__(message)
        self.index = index


@dataclass(frozen=True)
class KeyScope:
    """states: names, empty for all. key_prefix: leading parts as JSON has them, empty for all keys."""

    states: frozenset[str] = frozenset()
    key_prefix: tuple[Any, ...] = ()

    @classmethod
    def of(cls, key: ApiKey | None) -> "KeyScope":
        """Return the confinement of an API key; None stands for a session, which is free."""
        return UNRESTRICTED if key is None else cls(frozenset(key.states), tuple(key.key_prefix))

    @property
    def is_free(self) -> bool:
        return not self.states and not self.key_prefix

    def sees(self, name: str) -> bool:
        return not self.states or name in self.states

    def check_state(self, name: str) -> None:
        """Raises OutsideError for a state that the API key is not for."""
        if not self.sees(name):
            raise OutsideError(f"this API key is confined to the states {', '.join(sorted(self.states))}, not {name!r}")

    def check_free(self) -> None:
        """For what concerns more than some states or keys. Raises OutsideError if the API key is confined at all."""
        if not self.is_free:
            raise OutsideError("this API key is confined to some states or keys, and this concerns others, too")

    def check_whole_state(self, name: str) -> None:
        """For what concerns every key of a state. Raises OutsideError."""
        self.check_state(name)
        if self.key_prefix:
            raise OutsideError(f"this API key is confined to {self._shown}, and this concerns every key of a state")

    def prefix_of(self, spec: StateSpec) -> Key:
        """Return the leading key parts that every key of a state must have, typed; () if any will do.

        Raises OutsideError for a state that the API key is not for, or whose keys cannot start so.
        """
        self.check_state(spec.name)
        if not self.key_prefix:
            return ()
        try:
            return spec.check_prefix(list(self.key_prefix))
        except KeyShapeError:
            raise OutsideError(
                f"this API key is confined to {self._shown}, and no key of state {spec.name!r} can start so"
            ) from None

    def check_keys(self, spec: StateSpec, keys: Sequence[Key]) -> None:
        """Raises OutsideError naming the index of the first of the typed keys that is outside."""
        prefix = self.prefix_of(spec)
        if not prefix:
            return
        parts = len(prefix)
        for index, key in enumerate(keys):
            if tuple(key[:parts]) != prefix:
                raise OutsideError(f"key {index}: this API key is confined to {self._shown}", index)

    def check_prefix(self, spec: StateSpec, prefix: Any) -> Key:
        """Return the narrower of the API key's prefix and the one asked for, typed.

        Raises OutsideError where the two part, and KeyShapeError for a prefix that does not fit the state.
        """
        own, asked = self.prefix_of(spec), spec.check_prefix(prefix)
        shared = min(len(own), len(asked))
        if own[:shared] != asked[:shared]:
            raise OutsideError(f"prefix: this API key is confined to {self._shown}")
        return max(own, asked, key=len)

    @property
    def _shown(self) -> str:
        return f"keys that start with {json.dumps(self.key_prefix, ensure_ascii=False)}"


UNRESTRICTED = KeyScope()


def key_scope(request: Any) -> KeyScope:
    """Return what a request is confined to; a session is free."""
    return KeyScope.of(getattr(request, "auth", None))


# What a request may do: an API key what its scopes say; a session may read, and else what its user's groups allow.


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
