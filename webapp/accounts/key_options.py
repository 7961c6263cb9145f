"""The options of an API key, and their validation. Loads no models, so that commands can check arguments early."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models.enums import TextChoices

# The old secret's validity after a rotation; long enough to give the new one to every program that uses the old one.
GRACE = timedelta(days=1)


class Scope(TextChoices):
    READ = "read", "read: look values up"
    MAINTAIN = "maintain", "maintain: compact, expire, cancel"
    ISSUE_TOKENS = "issue_tokens", "issue_tokens: make short-lived tokens"
    DEAD_LETTERS = "dead_letters", "dead_letters: read the raw input of dead letters"
    CONFIGURATION = "configuration", "configuration: apply and export configuration files"


class KeyOptionError(ValueError):
    """An invalid option of an API key."""


class UnknownScopeError(KeyOptionError):
    """The scope does not exist."""


def check(key: Any) -> None:
    """Raises KeyOptionError for invalid options, or a combination of them. key: an ApiKey, or an object like one."""
    if not all(isinstance(part, str | int | float | bool) for part in key.key_prefix):
        raise KeyOptionError(
            f"API key {key.name!r}: a key prefix is a list of strings, numbers and booleans, got {key.key_prefix!r}"
        )
    if key.key_prefix and Scope.MAINTAIN in key.scopes:
        raise KeyOptionError(
            f"API key {key.name!r}: maintenance concerns every key of a state; remove the key prefix or the scope "
            f"{Scope.MAINTAIN.value!r}"
        )
    if key.queries and Scope.MAINTAIN in key.scopes:
        raise KeyOptionError(
            f"API key {key.name!r}: a key for saved queries does nothing else; remove the queries, or the scope "
            f"{Scope.MAINTAIN.value!r}"
        )
    if Scope.CONFIGURATION in key.scopes and (key.states or key.key_prefix or key.queries):
        raise KeyOptionError(
            f"API key {key.name!r}: configuration files concern all states, keys and queries; remove states, key "
            f"prefix and queries, or the scope {Scope.CONFIGURATION.value!r}"
        )
    if Scope.ISSUE_TOKENS in key.scopes and Scope.READ not in key.scopes:
        raise KeyOptionError(
            f"API key {key.name!r}: its tokens could read nothing; add the scope {Scope.READ.value!r}, or remove "
            f"{Scope.ISSUE_TOKENS.value!r}"
        )
    if key.expires_at is not None and key.expires_at <= datetime.now(UTC):
        raise KeyOptionError(f"API key {key.name!r}: its expiry {key.expires_at} is in the past")
    if (key.rate or 0) < 0 or (key.burst is not None and key.burst < 1):
        raise KeyOptionError(f"API key {key.name!r}: a rate of {key.rate} with a burst of {key.burst} allows nothing")


def checked_scopes(name: str, scopes: Iterable[str]) -> list[str]:
    names = sorted(set(scopes))
    for scope in names:
        if scope not in Scope.values:
            raise UnknownScopeError(f"API key {name!r}: scope {scope!r} is not one of {', '.join(Scope.values)}")
    return names
