"""Creates, changes, rotates and revokes API keys, with audit entries without secrets; and sets up the user groups."""

import secrets
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import psycopg
from django.contrib.auth.models import Group, Permission, User
from django.db import transaction
from django.utils import timezone
from psycopg import sql

from tidegauge.webapp.accounts import authentication
from tidegauge.webapp.accounts.actors import Actor, name_of
from tidegauge.webapp.accounts.audit.services import record
from tidegauge.webapp.accounts.key_options import GRACE, KeyOptionError, check, checked_scopes
from tidegauge.webapp.accounts.models import ApiKey, Restriction
from tidegauge.webapp.accounts.permissions import missing_to_give

# The three groups of users; each may do everything that the one before it may. Every signed-in user may view the
# dashboard and read the API without a group. The admin also requires staff status.
VIEWER = {
    "states": [
        "view_pipeline", "view_state", "view_batch", "view_deadletter", "view_maintenancerun", "view_pipelinelimits",
    ],
    "django_celery_beat": [
        "view_periodictask", "view_intervalschedule", "view_crontabschedule", "view_clockedschedule",
        "view_solarschedule",
    ],
    "saved_queries": ["view_savedquery"],
}  # fmt: skip
# The permissions to edit the schedule.
SCHEDULE = [
    f"{act}_{model}"
    for model in ("periodictask", "intervalschedule", "crontabschedule", "clockedschedule", "solarschedule")
    for act in ("add", "change", "delete")
]
OPERATOR = {
    "states": [
        *VIEWER["states"],
        "add_maintenancerun",
        "change_pipeline",
        "change_state",
        "view_dead_letters",
        "replay_dead_letters",
        "run_sql",
        "add_pipelinelimits",
        "change_pipelinelimits",
        "delete_pipelinelimits",
    ],
    "django_celery_beat": [*VIEWER["django_celery_beat"], *SCHEDULE],
    "saved_queries": ["view_savedquery", "add_savedquery", "change_savedquery"],
    "webhooks": ["view_webhook", "view_delivery"],
    "tidegauge_alerts": [
        *(f"view_{model}" for model in ("alertrule", "alert", "silence")),
        *(f"{act}_silence" for act in ("add", "change", "delete")),
    ],
    "tidegauge_boards": ["add_boardlink"],
}
ADMIN = OPERATOR | {
    "api_keys": ["view_apikey", "add_apikey", "change_apikey", "view_usagehour"],
    "auth": [f"{act}_{model}" for model in ("user", "group") for act in ("view", "add", "change", "delete")],
    "audit": ["view_auditentry"],
    "webhooks": [*OPERATOR["webhooks"], "add_webhook", "change_webhook", "delete_webhook"],
    "tidegauge_alerts": [*OPERATOR["tidegauge_alerts"], "add_alertrule", "change_alertrule", "delete_alertrule"],
    "tidegauge_saved_views": ["view_savedview", "delete_savedview"],
    "tidegauge_boards": ["add_boardlink", "view_boardlink", "delete_boardlink"],
}
GROUPS = {"viewer": VIEWER, "operator": OPERATOR, "admin": ADMIN}


class KeyRevokedError(ValueError):
    """The API key is revoked and cannot be rotated; create another one."""


class ScopeNotGivenError(ValueError):
    """A person lacks the permissions to give a scope: ask somebody who has them."""


def create_api_key(
    name: str,
    scopes: Iterable[str],
    created_by: Actor = None,
    *,
    states: Sequence[str] = (),
    key_prefix: Sequence[Any] = (),
    queries: Sequence[str] = (),
    rate: int | None = None,
    burst: int | None = None,
    expires_at: datetime | None = None,
) -> tuple[ApiKey, str]:
    """Create a key and return it with `tmk_<prefix>_<secret>`, which cannot be read again.

    states, key_prefix, queries: its key scope; rate, burst: its rate limit (see ApiKey).
    Raises UnknownScopeError naming the scope, and KeyOptionError.
    """
    key = ApiKey(
        name=name, scopes=checked_scopes(name, scopes), states=sorted(set(states)), key_prefix=list(key_prefix),
        queries=sorted(set(queries)), rate=rate, burst=burst, expires_at=expires_at,
        created_by=created_by if isinstance(created_by, User) else None, prefix=secrets.token_hex(4),
    )  # fmt: skip
    check(key)
    secret, key.secret_sha512 = _new_secret()
    with transaction.atomic():
        key.save()
        record("key.create", _target(key), by=name_of(created_by), **_options(key))
    return key, _secret_form(key, secret)


def rotate_api_key(key: ApiKey, grace: timedelta = GRACE, by: User | None = None) -> str:
    """Give a key a new secret and return `tmk_<prefix>_<secret>`. The secret before it stays valid for `grace`.

    Raises KeyRevokedError, KeyOptionError for a negative grace, and ScopeNotGivenError, because whoever rotates a key
    gets its secret and with it what its scopes allow.
    """
    if grace < timedelta():
        raise KeyOptionError(f"API key {key.name!r}: the grace period {grace} is negative")
    secret, digest = _new_secret()
    with transaction.atomic():
        held = ApiKey.objects.select_for_update(of=("self",)).get(pk=key.pk)
        if held.revoked_at is not None:
            raise KeyRevokedError(f"API key {key.name!r} is revoked; create another one")
        if by is not None:
            _check_giver(held, by)
        key.rotated_at = timezone.now()
        key.previous_sha512, key.previous_until = held.secret_sha512, key.rotated_at + grace
        key.secret_sha512 = digest
        key.save(update_fields=["secret_sha512", "previous_sha512", "previous_until", "rotated_at"])
        record("key.rotate", _target(key), by=name_of(by), grace_seconds=grace.total_seconds())
    authentication.clear_cache()
    return _secret_form(key, secret)


def change_api_key(key: ApiKey, by: Actor = None, **options: Any) -> None:
    """Change options of a key, whose secret stays valid; other processes follow as they do with a revocation.

    options: arguments of `create_api_key`. Raises KeyRevokedError, and KeyOptionError.
    """
    with transaction.atomic():
        held = ApiKey.objects.select_for_update(of=("self",)).get(pk=key.pk)
        if held.revoked_at is not None:
            raise KeyRevokedError(f"API key {key.name!r} is revoked; create another one")
        before = _options(held)
        for name, value in options.items():
            setattr(held, name, value)
        held.scopes = checked_scopes(held.name, held.scopes)
        check(held)
        held.save(update_fields=[*options])
        record("key.change", _target(held), by=name_of(by), before=before, after=_options(held))
    authentication.clear_cache()


def _check_giver(key: ApiKey, by: User) -> None:
    for scope in key.scopes:
        if lacking := missing_to_give(by, scope):
            raise ScopeNotGivenError(
                f"API key {key.name!r} has the scope {scope!r}, which you may not give: you lack {', '.join(lacking)}"
            )


def revoke_api_key(key: ApiKey, by: Actor = None) -> None:
    """Refuse the key from now on; other processes within TIDEGAUGE_API_KEY_CACHE_SECONDS."""
    now = timezone.now()
    with transaction.atomic():
        if ApiKey.objects.filter(pk=key.pk, revoked_at=None).update(revoked_at=now):
            record("key.revoke", _target(key), by=name_of(by))
    key.refresh_from_db(fields=["revoked_at"])
    authentication.clear_cache()


def _new_secret() -> tuple[str, bytes]:
    secret = secrets.token_urlsafe(32)
    return secret, authentication.digest_of(secret)


def _secret_form(key: ApiKey, secret: str) -> str:
    return f"{authentication.MARK}_{key.prefix}_{secret}"


def _target(key: ApiKey) -> str:
    return f"API key {key}"


def rename_in_key_scopes(conn: psycopg.Connection, *, old: str, new: str) -> None:
    """Rename a state in all key scopes that name it, in the caller's transaction."""
    for model in (ApiKey, Restriction):
        table = sql.Identifier(model._meta.db_table)
        conn.execute(
            sql.SQL("UPDATE {} SET states = array_replace(states, %s, %s) WHERE %s = ANY(states)").format(table),
            [old, new, old],
        )


def _options(key: ApiKey) -> dict[str, Any]:
    """Return the options that were set, for the audit log."""
    expires_at = key.expires_at and key.expires_at.isoformat()
    options = {name: getattr(key, name) for name in ("states", "key_prefix", "queries", "rate", "burst")}
    return (
        {"scopes": key.scopes}
        | {name: value for name, value in options.items() if value not in ([], None)}
        | ({"expires_at": expires_at} if expires_at else {})
    )


def ensure_groups(using: str = "default", **signal: Any) -> None:
    """Create the groups and reset their permissions, after each migration."""
    for name, permissions in GROUPS.items():
        group, _ = Group.objects.using(using).get_or_create(name=name)
        group.permissions.set(_found(permissions, using))


def _found(permissions: dict[str, list[str]], using: str) -> list[Permission]:
    return [
        permission
        for app, codenames in permissions.items()
        for permission in Permission.objects.using(using).filter(content_type__app_label=app, codename__in=codenames)
    ]
