"""What a request may do: an API key's scopes and key scope, or the permissions of a signed-in user.

A key scope restricts an API key or a user to some states, and to keys with a prefix. A refusal names what was requested
and what is allowed, and is the same whether the state or key exists or not.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, cast

from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.db.models import Q
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from tidegauge.state_backends import StateSpec
from tidegauge.state_backends.errors import KeyShapeError
from tidegauge.state_backends.spec.row import Key
from tidegauge.webapp.accounts.key_options import Scope
from tidegauge.webapp.accounts.models import ApiKey, Restriction

REQUEST_MAINTENANCE = "states.add_maintenancerun"
STEER_PIPELINES = "states.change_pipeline"
SILENCE = "tidegauge_alerts.add_silence"
# Without it, dead letters are shown without their input.
VIEW_DEAD_LETTERS = "states.view_dead_letters"
REPLAY_DEAD_LETTERS = "states.replay_dead_letters"
READ_USAGE = "api_keys.view_usagehour"
VIEW_KEYS = "api_keys.view_apikey"
# To show a board to people without an account; a link ends if the person who made it loses this.
SHARE_BOARDS = "tidegauge_boards.add_boardlink"
# SQL is not limited to some states or keys, so it also needs a person without a restriction.
RUN_SQL = "states.run_sql"
CREATE_KEYS = "api_keys.add_apikey"
REVOKE_KEYS = REVOKE_TOKENS = "api_keys.change_apikey"

# What files may create, change and remove, beside API keys, states and saved queries; see webapp/configuration.
DECLARED_IN_FILES = (
    "webhooks.{}_webhook",
    "tidegauge_alerts.{}_alertrule",
    "states.{}_pipelinelimits",
    "django_celery_beat.{}_periodictask",
)

# Permissions of a user that are needed to give an API key a scope, so that nobody gives more than they may do.
NEEDED_TO_GIVE: dict[str, tuple[str, ...]] = {
    Scope.MAINTAIN: (REQUEST_MAINTENANCE, STEER_PIPELINES, REPLAY_DEAD_LETTERS),
    Scope.DEAD_LETTERS: (VIEW_DEAD_LETTERS,),
    Scope.CONFIGURATION: (
        CREATE_KEYS,
        REVOKE_KEYS,
        "states.change_state",
        "saved_queries.add_savedquery",
        "saved_queries.change_savedquery",
        *(each.format(act) for each in DECLARED_IN_FILES for act in ("add", "change", "delete")),
    ),
}


def missing_to_give(giver: Any, scope: str) -> list[str]:
    """Return what a user or an API key lacks to create an API key with a scope: permissions, or the scope itself."""
    if isinstance(giver, ApiKey):
        return [] if giver.allows(scope) else [f"the scope {scope!r}"]
    return [permission for permission in NEEDED_TO_GIVE.get(scope, ()) if not giver.has_perm(permission)]


class HasScope(BasePermission):
    """Requires the scope `read`, or the one in the view's `scopes` for the method: `scopes = {"POST": "maintain"}`.

    An API key that is restricted to saved queries is refused, unless the view has `for_saved_queries = True`.

    A session needs the view's `permission` for `maintain`, so that the API and the admin allow the same users.
    """

    def has_permission(self, request: Request, view) -> bool:
        scope = getattr(view, "scopes", {}).get(request.method, Scope.READ)
        key = api_key(request)
        if key is not None:
            if not getattr(view, "for_saved_queries", False):
                KeyScope.of(key).check_reads_states()
            noun = "API key" if key.token is None else "token"
            self.message = f"this {noun} lacks the scope {str(scope)!r}; it has {', '.join(key.scopes) or 'none'}"
            return key.allows(scope)
        if scope == Scope.READ:
            return request.user.is_authenticated
        permission = getattr(view, "permission", REQUEST_MAINTENANCE)
        self.message = f"you lack the permission {permission!r}; the groups operator and admin have it"
        return request.user.is_authenticated and request.user.has_perm(permission)


def api_key(request: Request) -> ApiKey | None:
    """Return the API key that authenticated the request; None for a session."""
    return cast(ApiKey | None, request.auth)


class OutsideError(PermissionDenied):
    """The request is outside the API key's key scope. index: that of the first key outside, if keys were requested."""

    def __init__(self, message: str, index: int | None = None) -> None:
        super().__init__(message)
        self.index = index


class NoSuchKeysError(OutsideError):
    """No key of a state can have the API key's prefix. The API answers as if the state did not exist."""


@dataclass(frozen=True)
class KeyScope:
    """states: names; empty: all. key_prefix: leading key parts as in JSON; empty: all keys. holder: for messages.

    queries: if any, only these saved queries may be run, and nothing else. They read within the other restrictions, see
        `of_reads`.
    """

    states: frozenset[str] = frozenset()
    key_prefix: tuple[Any, ...] = ()
    queries: frozenset[str] = frozenset()
    holder: str = field(default="this API key is", compare=False)

    @classmethod
    def of(cls, key: ApiKey | None) -> "KeyScope":
        """Return the key scope of an API key; None is unrestricted."""
        if key is None or not (key.states or key.key_prefix or key.queries):
            return UNRESTRICTED
        return cls(frozenset(key.states), tuple(key.key_prefix), frozenset(key.queries))

    def narrowed(self, other: "KeyScope") -> "KeyScope":
        """Return the key scope that allows only what both allow."""
        longer, shorter = sorted([self.key_prefix, other.key_prefix], key=len, reverse=True)
        states = self.states & other.states if self.states and other.states else self.states | other.states
        # As JSON, because 1 == True and 1 == 1.0 in Python, but they are different keys.
        fits = json.dumps(longer[: len(shorter)]) == json.dumps(shorter)
        is_empty = not fits or (not states and bool(self.states or other.states))
        return replace(self, states=frozenset({NO_STATE}) if is_empty else states, key_prefix=longer)

    @property
    def is_unrestricted(self) -> bool:
        return not self.states and not self.key_prefix and not self.queries

    @property
    def of_reads(self) -> "KeyScope":
        """The key scope within which a saved query reads."""
        return replace(self, queries=frozenset())

    def sees(self, name: str) -> bool:
        return not self.queries and (not self.states or name in self.states)

    def sees_query(self, name: str) -> bool:
        return not self.queries or name in self.queries

    def check_reads_states(self) -> None:
        """Raises OutsideError if only saved queries may be run."""
        if self.queries:
            raise OutsideError(f"{self.holder} restricted to the saved queries {', '.join(sorted(self.queries))}")

    def check_query(self, name: str) -> None:
        """Raises OutsideError for a saved query outside the key scope."""
        if not self.sees_query(name):
            self.check_reads_states()

    def check_state(self, name: str) -> None:
        """Raises OutsideError for a state outside the key scope."""
        self.check_reads_states()
        if not self.sees(name):
            states = ", ".join(sorted(self.states))
            raise OutsideError(f"{self.holder} restricted to the states {states}, not {name!r}")

    def check_unrestricted(self) -> None:
        """For actions on a whole pipeline. Raises OutsideError if the API key is restricted at all."""
        if not self.is_unrestricted:
            raise OutsideError(f"{self.holder} restricted to some states or keys, and this concerns others too")

    def check_whole_state(self, name: str) -> None:
        """For actions on all keys of a state. Raises OutsideError."""
        self.check_state(name)
        if self.key_prefix:
            raise OutsideError(f"{self.holder} restricted to {self._keys}, and this concerns every key of a state")

    def prefix_of(self, spec: StateSpec) -> Key:
        """Return the prefix that all requested keys of a state must have, typed; () if none is required.

        Raises OutsideError for a state outside the key scope, NoSuchKeysError if its keys cannot have the prefix.
        """
        self.check_state(spec.name)
        if not self.key_prefix:
            return ()
        try:
            return spec.check_prefix(list(self.key_prefix))
        except KeyShapeError:
            raise NoSuchKeysError(
                f"{self.holder} restricted to {self._keys}, and no key of state {spec.name!r} can have this prefix"
            ) from None

    def reads(self, spec: StateSpec) -> bool:
        """Return whether a state can have keys within the key scope."""
        try:
            self.prefix_of(spec)
        except OutsideError:
            return False
        return True

    def check_keys(self, spec: StateSpec, keys: Sequence[Key]) -> None:
        """Raises OutsideError with the index of the first typed key outside the key scope."""
        prefix = self.prefix_of(spec)
        if not prefix:
            return
        parts = len(prefix)
        for index, key in enumerate(keys):
            if tuple(key[:parts]) != prefix:
                raise OutsideError(f"key {index}: {self.holder} restricted to {self._keys}", index)

    def check_prefix(self, spec: StateSpec, prefix: Any) -> Key:
        """Return the longer of the API key's prefix and the requested one, typed.

        Raises OutsideError if neither is a prefix of the other, KeyShapeError if the requested one does not fit.
        """
        own, requested = self.prefix_of(spec), spec.check_prefix(prefix)
        shared = min(len(own), len(requested))
        if own[:shared] != requested[:shared]:
            raise OutsideError(f"prefix: {self.holder} restricted to {self._keys}")
        return max(own, requested, key=len)

    @property
    def _keys(self) -> str:
        return f"keys that start with {json.dumps(self.key_prefix, ensure_ascii=False)}"


UNRESTRICTED = KeyScope()
UNRESTRICTED_PERSON = KeyScope(holder="you are")

# Stands for no state at all, because an empty set means all of them. No state can have this name.
NO_STATE = "(none)"
IN_NO_GROUP = KeyScope(frozenset({NO_STATE}), holder="you are in no group here, so you are")


def key_scope(request: Any) -> KeyScope:
    """Return the key scope of a request: of its API key, or of its user."""
    key = getattr(request, "auth", None)
    return person_scope(request.user) if key is None else KeyScope.of(key)


def person_scope(user: Any) -> KeyScope:
    """Return what all restrictions of a user and of the user's groups allow. They do not apply to superusers."""
    if not user.is_authenticated or user.is_superuser:
        return UNRESTRICTED_PERSON
    found = getattr(user, "_key_scope", None)
    if found is None:
        restrictions = Restriction.objects.filter(Q(user=user) | Q(group__user=user))
        scopes = (KeyScope(frozenset(each.states), tuple(each.key_prefix)) for each in restrictions)
        found = reduce(KeyScope.narrowed, scopes, UNRESTRICTED_PERSON)
        needs_group = settings.OIDC_GROUP_REQUIRED and getattr(user, "is_from_provider", False)
        if found.is_unrestricted and needs_group and not user.groups.exists():
            found = IN_NO_GROUP
        user._key_scope = found
    return found
