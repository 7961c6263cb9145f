"""What a client may follow: a state, some keys of one, or every pipeline's tide. Equal questions are read once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import psycopg
from django.conf import settings
from rest_framework.exceptions import ParseError

from state_backends import StateSpec
from state_backends.errors import UnknownStateError
from state_backends.reader.bounds import check_measures
from state_backends.row import Key
from webapp.accounts.permissions import KeyScope
from webapp.api.lookups import typed_keys
from webapp.states import readers

PARAMETERS = ("keys", "prefix", "measures")


@dataclass(frozen=True)
class StateSubscription:
    """A state, of which `keys` narrows it to these, None to none; else `prefix` to keys that start so.

    pipeline: whose commits concern it. measures: which ones to tell; None means all.
    """

    state: str
    pipeline: str
    keys: tuple[Key, ...] | None = None
    prefix: Key = ()
    measures: tuple[str, ...] | None = None


@dataclass(frozen=True)
class CommitsSubscription:
    """Where every pipeline stands. states: only pipelines that feed one of these; empty: all."""

    states: frozenset[str] = frozenset()


Subscription = StateSubscription | CommitsSubscription


def tide_question(confinement: KeyScope) -> CommitsSubscription:
    return CommitsSubscription(confinement.states)


def state_question(name: str, parameters: Mapping[str, Sequence[str]], confinement: KeyScope) -> StateSubscription:
    """Raises ParseError, KeyShapeError and SpecError for what does not fit, UnknownStateError, OutsideError."""
    confinement.check_state(name)
    unknown = sorted(set(parameters) - set(PARAMETERS))
    if unknown:
        raise ParseError(f"unknown parameter {unknown[0]!r}; there are {', '.join(PARAMETERS)}")
    if "keys" in parameters and "prefix" in parameters:
        raise ParseError("keys and prefix exclude each other; ask in two streams")
    pipeline, spec = readers.read(lambda conn: _known(conn, name))
    keys = _keys(spec, parameters, confinement)
    prefix = () if keys is not None else confinement.check_prefix(spec, _list(parameters, "prefix") or [])
    return StateSubscription(name, pipeline, keys, prefix, _measures(spec, parameters))


def _known(conn: psycopg.Connection, name: str) -> tuple[str, StateSpec]:
    row = conn.execute("SELECT pipeline FROM tidemark.state WHERE name = %s", [name]).fetchone()
    spec = readers.reader(conn, name).spec
    if row is None:
        raise UnknownStateError(f"state {name!r} does not exist")
    return row[0], spec


def _keys(spec: StateSpec, parameters: Mapping[str, Sequence[str]], confinement: KeyScope) -> tuple[Key, ...] | None:
    asked = _list(parameters, "keys")
    if asked is None:
        return None
    limit = settings.TIDEMARK_LOOKUP_MAX_KEYS
    if len(asked) > limit:
        raise ParseError(f"{len(asked)} keys are over the limit of {limit}; ask for them in several streams")
    return tuple(dict.fromkeys(spec.check_keys(typed_keys(spec, asked, confinement))))


def _measures(spec: StateSpec, parameters: Mapping[str, Sequence[str]]) -> tuple[str, ...] | None:
    if "measures" not in parameters:
        return None
    asked = [measure for text in parameters["measures"] for measure in text.split(",")]
    return tuple(dict.fromkeys(check_measures(spec, asked)))


def _list(parameters: Mapping[str, Sequence[str]], name: str) -> list[Any] | None:
    if name not in parameters:
        return None
    try:
        value = orjson.loads(parameters[name][-1])
    except orjson.JSONDecodeError as error:
        raise ParseError(f"{name} is no JSON: {error}") from None
    if not isinstance(value, list):
        raise ParseError(f'{name} must be a JSON list, such as {name}=["JFK"]')
    return value
