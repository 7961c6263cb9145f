"""What a client subscribes to: a state, some keys of it, or the commits of all pipelines.

Subscriptions are compared by value, so that clients with equal subscriptions share their reads.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import psycopg
from django.conf import settings
from rest_framework.exceptions import ParseError

from tidegauge.state_backends import StateSpec
from tidegauge.state_backends.errors import UnknownStateError
from tidegauge.state_backends.reader.bounds import check_measures
from tidegauge.state_backends.spec.row import Key
from tidegauge.webapp.accounts.permissions import KeyScope
from tidegauge.webapp.api.fields import TooManyKeysError
from tidegauge.webapp.api.lookups import typed_keys
from tidegauge.webapp.api.parameters import check_parameters
from tidegauge.webapp.api.rendering import parse_json
from tidegauge.webapp.catalog import readers
from tidegauge.webapp.catalog.visible import Visible

PARAMETERS = ("keys", "prefix", "measures")


@dataclass(frozen=True)
class StateSubscription:
    """Changes of a state, fed by `pipeline`.

    keys: only these; None means all that start with `prefix`. measures: only these; None means all.
    """

    state: str
    pipeline: str
    keys: tuple[Key, ...] | None = None
    prefix: Key = ()
    measures: tuple[str, ...] | None = None


@dataclass(frozen=True)
class CommitsSubscription:
    """The commits and driver status of the pipelines that feed one of `states`; None means all pipelines."""

    states: frozenset[str] | None = None


Subscription = StateSubscription | CommitsSubscription


def commits_subscription(parameters: Mapping[str, Sequence[str]], scope: KeyScope) -> CommitsSubscription:
    """Raises UnknownParameterError for any parameter, because it takes none."""
    check_parameters(parameters, ())
    return CommitsSubscription(Visible(scope).names)


def state_subscription(name: str, parameters: Mapping[str, Sequence[str]], scope: KeyScope) -> StateSubscription:
    """Return the subscription that a request's query parameters describe, restricted to the key scope.

    Raises ParseError, KeyShapeError and SpecError for invalid parameters, UnknownStateError, OutsideError.
    """
    scope.check_state(name)
    check_parameters(parameters, PARAMETERS)
    if "keys" in parameters and "prefix" in parameters:
        raise ParseError("keys and prefix exclude each other; use two streams")
    pipeline, spec = readers.read(lambda conn: _pipeline_and_spec(conn, name))
    keys = _keys(spec, parameters, scope)
    prefix = () if keys is not None else scope.check_prefix(spec, _list(parameters, "prefix") or [])
    return StateSubscription(name, pipeline, keys, prefix, _measures(spec, parameters))


def _pipeline_and_spec(conn: psycopg.Connection, name: str) -> tuple[str, StateSpec]:
    row = conn.execute("SELECT pipeline FROM tidegauge.state WHERE name = %s", [name]).fetchone()
    spec = readers.reader(conn, name).spec
    if row is None:
        raise UnknownStateError(f"state {name!r} does not exist")
    return row[0], spec


def _keys(spec: StateSpec, parameters: Mapping[str, Sequence[str]], scope: KeyScope) -> tuple[Key, ...] | None:
    keys = _list(parameters, "keys")
    if keys is None:
        return None
    limit = settings.TIDEGAUGE_LOOKUP_MAX_KEYS
    if len(keys) > limit:
        raise TooManyKeysError(len(keys), limit, "use several streams")
    return tuple(dict.fromkeys(spec.check_keys(typed_keys(spec, keys, scope))))


def _measures(spec: StateSpec, parameters: Mapping[str, Sequence[str]]) -> tuple[str, ...] | None:
    if "measures" not in parameters:
        return None
    names = [name for text in parameters["measures"] for name in text.split(",")]
    return tuple(dict.fromkeys(check_measures(spec, names)))


def _list(parameters: Mapping[str, Sequence[str]], name: str) -> list[Any] | None:
    if name not in parameters:
        return None
    try:
        value = parse_json(parameters[name][-1])
    except orjson.JSONDecodeError as error:
        raise ParseError(f"{name} is not JSON: {error}") from None
    if not isinstance(value, list):
        raise ParseError(f'{name} must be a JSON list, such as {name}=["JFK"]')
    return value
