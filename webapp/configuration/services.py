"""Exports the configuration, compares it with files, and applies files: all of them or, after an error, nothing."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db import connection, transaction

from tidegauge.state_backends.errors import TidegaugeError
from tidegauge.webapp.accounts.actors import Actor
from tidegauge.webapp.configuration.document import Document, as_document, comparable
from tidegauge.webapp.configuration.errors import ConfigurationError
from tidegauge.webapp.configuration.fields import is_same
from tidegauge.webapp.configuration.kinds import KINDS
from tidegauge.webapp.configuration.plan import Change, plan

# Until the end of the transaction, so that two applies see what the other one has done as a whole, or nothing of it.
LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('tidegauge configuration', 0))"

# By kind and name.
Secrets = dict[str, dict[str, str]]


@dataclass(frozen=True)
class Applied:
    """secrets: of the objects that were created, which cannot be shown again."""

    changes: list[Change] = field(default_factory=list)
    secrets: Secrets = field(default_factory=dict, repr=False)


def export() -> dict[str, Any]:
    """Return the document that declares what is stored. Raises ConfigurationError."""
    return as_document({kind: _values(kind, each.stored(None)) for kind, each in KINDS.items()})


def diff(wanted: Document, *, prune: bool = False, by: Actor = None) -> list[Change]:
    """Return what `apply` would change. Raises ConfigurationError for what it would refuse."""
    with transaction.atomic():
        # By doing it, because a rule is valid only once the webhook exists that the same file declares.
        applied = _apply(wanted, prune, by)
        transaction.set_rollback(True)
    return applied.changes


def apply(
    wanted: Document, *, prune: bool = False, by: Actor = None, keep: Callable[[Secrets], None] = lambda secrets: None
) -> Applied:
    """Make what is stored equal to what files declare. Other objects stay, unless `prune` and the files have the kind.

    keep: is given the secrets before anything is committed, so that they are not lost if it fails.
    Raises ConfigurationError; then nothing has changed.
    """
    with transaction.atomic():
        applied = _apply(wanted, prune, by)
        keep(applied.secrets)
    return applied


def _apply(wanted: Document, prune: bool, by: Actor) -> Applied:
    with connection.cursor() as cursor:
        cursor.execute(LOCK)
    kinds = [kind for kind in KINDS if kind in wanted]
    stored = {kind: _stored(kind, wanted[kind].keys(), prune=prune) for kind in kinds}
    changes = [change for kind in kinds for change in _planned(kind, stored[kind], wanted, prune=prune)]
    done = Applied(changes)
    for change in changes:
        if change.act != "remove":
            secret = _carry_out(change, stored[change.kind].get(change.name), wanted, by)
            if secret:
                done.secrets.setdefault(change.kind, {})[change.name] = secret
    # The other way round, because alert rules go before the webhooks that they name.
    for change in reversed(changes):
        if change.act == "remove":
            _carry_out(change, stored[change.kind][change.name], wanted, by)
    return done


def _stored(kind: str, names: Collection[str], *, prune: bool) -> Mapping[str, Any]:
    # Those that are named as well, because a state that nobody has changed is not among all that could be removed.
    found = KINDS[kind].stored(names)
    return {**KINDS[kind].stored(None), **found} if prune else found


def _planned(kind: str, stored: Mapping[str, Any], wanted: Document, *, prune: bool) -> list[Change]:
    fields = {name: declared.fields for name, declared in wanted[kind].items()}
    values = _values(kind, stored)
    return plan(kind, values, fields, prune=prune, kept=KINDS[kind].kept)


def _values(kind: str, stored: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: comparable(KINDS[kind].fields, KINDS[kind].values(found)) for name, found in stored.items()}


def _carry_out(change: Change, found: Any, wanted: Document, by: Actor) -> str:
    """Make one change. Returns the secret of what was created, if it has one. Raises ConfigurationError."""
    kind, declared, secret = KINDS[change.kind], wanted[change.kind].get(change.name), ""
    try:
        if change.act == "create":
            secret = kind.create(change.name, change.after, by)
        elif change.act == "change":
            kind.change(found, change.after, by)
        else:
            kind.remove(found, by)
            return ""
        _check_stored(change)
    except (ValueError, TidegaugeError) as error:
        where = f"{declared.file}: " if declared else ""
        raise ConfigurationError(f"{where}{kind.noun} {change.name!r}: {error}") from error
    return secret


def _check_stored(change: Change) -> None:
    """Raises ConfigurationError if something else was stored, because then each apply would change it again."""
    stored = _values(change.kind, KINDS[change.kind].stored([change.name])).get(change.name)
    if stored is None:
        raise ConfigurationError("the name would be stored in another form; remove blanks around it")
    for name, value in change.after.items():
        if not is_same(stored[name], value):
            raise ConfigurationError(f"{name} would be stored in another form; write it as {stored[name]!r}")
