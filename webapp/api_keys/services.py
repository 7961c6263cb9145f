"""Making and revoking API keys."""

import hashlib
import secrets
from collections.abc import Iterable

from django.contrib.auth.models import User
from django.utils import timezone

from webapp.api_keys import verification
from webapp.api_keys.models import ApiKey, Scope


class UnknownScopeError(ValueError):
    """A scope that does not exist was asked for."""


def create_api_key(name: str, scopes: Iterable[str], created_by: User | None = None) -> tuple[ApiKey, str]:
    """Make a key and return it with its secret form, `tmk_<prefix>_<secret>`, which nobody can read again.

    Raises UnknownScopeError naming the scope.
    """
    wanted = sorted(set(scopes))
    for scope in wanted:
        if scope not in Scope.values:
            raise UnknownScopeError(f"API key {name!r}: scope {scope!r} is none of {', '.join(Scope.values)}")
    prefix, secret = secrets.token_hex(4), secrets.token_urlsafe(32)
    digest = hashlib.sha512(secret.encode()).digest()
    key = ApiKey.objects.create(name=name, prefix=prefix, secret_sha512=digest, scopes=wanted, created_by=created_by)
    return key, f"{verification.MARK}_{prefix}_{secret}"


def revoke_api_key(key: ApiKey) -> None:
    """Refuse the key from now on; other processes follow when their memory of it ends (see settings)."""
    if key.revoked_at is None:
        key.revoked_at = timezone.now()
        key.save(update_fields=["revoked_at"])
    verification.forget()
