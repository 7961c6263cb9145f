"""What the body of a lookup may ask, checked member by member before anything is read."""

from dataclasses import dataclass
from typing import Any

from django.conf import settings
from rest_framework.exceptions import ParseError

from webapp.api.serializers import MAX_QUERIES

LARGEST_TXID = 2**63 - 1
OF_KEYS = {"keys", "measures", "combine"}
OF_BATCH = {"as_of", "min_txid", "wait_ms"}


@dataclass(frozen=True)
class Keys:
    """asked: as the client wrote them. measures: which ones to answer; None means all. combine: fold them into one."""

    asked: list[Any]
    measures: list[str] | None = None
    combine: bool = False

    @classmethod
    def of(cls, body: dict[str, Any]) -> "Keys":
        combine = body.get("combine", False)
        if type(combine) is not bool:
            raise ParseError("combine must be true or false")
        return cls(_keys(body.get("keys")), _measures(body.get("measures")), combine)


@dataclass(frozen=True)
class When:
    """as_of: answer as after this batch; None means the committed one. min_txid: wait for this one, wait_ms at most."""

    as_of: int | None = None
    min_txid: int | None = None
    wait_ms: int = 0

    @classmethod
    def of(cls, body: dict[str, Any]) -> "When":
        if OF_BATCH.isdisjoint(body):
            return NOW
        longest = settings.TIDEMARK_MAX_WAIT_MS
        wait_ms = _whole(body, "wait_ms", longest)
        return cls(
            _whole(body, "as_of", LARGEST_TXID),
            _whole(body, "min_txid", LARGEST_TXID),
            longest if wait_ms is None else wait_ms,
        )


NOW = When()


@dataclass(frozen=True)
class Query:
    """A question to one state."""

    keys: Keys
    when: When = NOW

    @classmethod
    def from_body(cls, body: Any) -> "Query":
        """Raises ParseError naming what does not fit."""
        members = _members(body, OF_KEYS | OF_BATCH, 'an object such as {"keys": [["JFK", "AA"]]}')
        return cls(Keys.of(members), When.of(members))


@dataclass(frozen=True)
class Queries:
    """Questions to several states, by name, about one batch."""

    of_states: list[tuple[str, Keys]]
    when: When = NOW

    @classmethod
    def from_body(cls, body: Any) -> "Queries":
        """Raises ParseError naming what does not fit."""
        members = _members(body, {"queries"} | OF_BATCH, 'an object such as {"queries": [{"state": "totals", ..}]}')
        asked = members.get("queries")
        if not isinstance(asked, list) or not 1 <= len(asked) <= MAX_QUERIES:
            raise ParseError(f"queries must be a list of 1 to {MAX_QUERIES} queries, each with its state and keys")
        queries = [_of_state(query, index) for index, query in enumerate(asked)]
        _check_number(sum(len(keys.asked) for _, keys in queries))
        return cls(queries, When.of(members))


def _of_state(body: Any, index: int) -> tuple[str, Keys]:
    try:
        members = _members(body, {"state"} | OF_KEYS, 'an object such as {"state": "totals", "keys": [[]]}')
        name = members.get("state")
        if not isinstance(name, str) or "\0" in name:
            raise ParseError("state must be the name of one")
        return name, Keys.of(members)
    except ParseError as error:
        raise ParseError(f"query {index}: {error}") from error


def _members(body: Any, known: set[str], example: str) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise ParseError(f"the body must be {example}")
    if not body.keys() <= known:
        raise ParseError(f"unknown member {min(body.keys() - known)!r}; there are {', '.join(sorted(known))}")
    return body


def _keys(keys: Any) -> list[Any]:
    if not isinstance(keys, list):
        raise ParseError("keys must be a list of keys, each a list of its parts")
    _check_number(len(keys))
    return keys


def _check_number(keys: int) -> None:
    limit = settings.TIDEMARK_LOOKUP_MAX_KEYS
    if keys > limit:
        raise ParseError(f"{keys} keys are over the limit of {limit}; ask for them in several requests")


def _measures(measures: Any) -> list[str] | None:
    if measures is None or (isinstance(measures, list) and all(isinstance(measure, str) for measure in measures)):
        return measures
    raise ParseError("measures must be a list of names")


def _whole(body: dict[str, Any], name: str, most: int) -> int | None:
    number = body.get(name)
    if number is None:
        return None
    if type(number) is not int or not 0 <= number <= most:
        raise ParseError(f"{name} must be a whole number from 0 to {most}, got {str(number)[:40]!r}")
    return number
