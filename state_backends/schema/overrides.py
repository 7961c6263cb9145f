"""Overrides: ttl and changelog that people set for a state, in place of those that its code declares.

`tidegauge.state` stores both, as `declared` and `edits`. The values that apply are where every reader looks for them:
the ttl at once in the column `ttl`, and the changelog in `definition`, which only the driver changes, when it starts.
"""

import json
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum
from typing import Any

import psycopg

from tidegauge.state_backends.errors import SpecError
from tidegauge.state_backends.protocols import BACKENDS
from tidegauge.state_backends.spec.state_spec import StateSpec


class Setting(Enum):
    """What can be given instead of a value. KEEP: leave it as it is. DECLARED: follow the code, now and later."""

    KEEP = "keep"
    DECLARED = "declared"


KEEP, DECLARED = Setting.KEEP, Setting.DECLARED
Ttl = timedelta | None | Setting
Log = bool | Setting


@dataclass(frozen=True)
class Terms:
    """How long rows of a state are kept, and whether their versions are.

    ttl: the one that applies; None is unlimited. changelog: whether there is one now; next_changelog: whether there is
    one after the driver's next start. declared_ttl, declared_changelog: as in the code. edited: which of the two people
    have set.
    """

    ttl: timedelta | None
    changelog: bool
    next_changelog: bool
    declared_ttl: timedelta | None
    declared_changelog: bool
    edited: frozenset[str] = frozenset()

    def document(self) -> dict[str, Any]:
        """Return an edit as JSON; a ttl in seconds."""
        seconds = None if self.ttl is None else self.ttl.total_seconds()
        return {"ttl_seconds": seconds, "changelog": self.next_changelog, "edited": sorted(self.edited)}


# States that were stored before version 4 have no `declared`. Their values are the declared ones.
TERMS = """
SELECT s.ttl, (s.definition ->> 'changelog')::boolean,
       CASE WHEN s.declared ? 'ttl' THEN (s.declared ->> 'ttl')::interval ELSE s.ttl END,
       coalesce((s.declared ->> 'changelog')::boolean, (s.definition ->> 'changelog')::boolean),
       s.edits ? 'ttl', (s.edits ->> 'changelog')::boolean
FROM tidegauge.state s WHERE s.name = %s
"""


def terms(conn: psycopg.Connection, name: str, *, lock: bool = False) -> Terms | None:
    """Return the terms of a state; None if it is not registered. lock: block other edits for the transaction."""
    row = conn.execute(TERMS + ("FOR NO KEY UPDATE" if lock else ""), [name]).fetchone()
    if row is None:
        return None
    ttl, logged, declared_ttl, declared_log, has_ttl, set_log = row
    edited = [word for word, is_set in {"ttl": has_ttl, "changelog": set_log is not None}.items() if is_set]
    return Terms(ttl, logged, _or(set_log, declared_log), declared_ttl, declared_log, frozenset(edited))


def changed(spec: StateSpec, before: Terms, ttl: Ttl, changelog: Log) -> Terms:
    """Return the terms of a state after an edit. Raises SpecError for a value that the state cannot have."""
    edited = set(before.edited)
    for word, setting in {"ttl": ttl, "changelog": changelog}.items():
        if setting is not KEEP:
            (edited.discard if setting is DECLARED else edited.add)(word)
    after = replace(
        before,
        ttl=_set(ttl, before.ttl, before.declared_ttl),
        next_changelog=_set(changelog, before.next_changelog, before.declared_changelog),
        edited=frozenset(edited),
    )
    backend = BACKENDS[spec.backend]
    if backend.tables is None and after.next_changelog != before.changelog:
        raise SpecError(
            f"state {spec.name!r}: lives in {spec.backend}, whose rows are not copied into a changelog that begins "
            "later; declare a new state with one, and feed it from the start of the input"
        )
    # Built only because that checks the values.
    replace(spec, ttl=after.ttl, changelog=after.next_changelog)
    return after


def store(conn: psycopg.Connection, name: str, terms: Terms) -> None:
    values = {"ttl": _text(terms.ttl), "changelog": terms.next_changelog}
    conn.execute(
        "UPDATE tidegauge.state SET ttl = %s, declared = declared || %s::jsonb, edits = %s::jsonb WHERE name = %s",
        [
            terms.ttl,
            declared(terms.declared_ttl, terms.declared_changelog),
            json.dumps({word: values[word] for word in sorted(terms.edited)}),
            name,
        ],
    )


def declared(ttl: timedelta | None, changelog: bool) -> str:
    """Return the declared terms of a state as JSON, as the catalog stores them."""
    return json.dumps({"ttl": _text(ttl), "changelog": changelog})


def _text(ttl: timedelta | None) -> str | None:
    return None if ttl is None else f"{ttl.days} days {ttl.seconds} seconds {ttl.microseconds} microseconds"


def _set(setting: Any, kept: Any, declared: Any) -> Any:
    return kept if setting is KEEP else declared if setting is DECLARED else setting


def _or(first: bool | None, second: bool) -> bool:
    return second if first is None else first
