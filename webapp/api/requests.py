"""What a client may send in the body of a lookup; for query parameters see parameters.py.

Each serializer both checks a request and describes it in /api/schema. The first wrong member ends the check with a
ParseError, a 400 that names the member. Unknown members are refused.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import cache, cached_property
from typing import Any, NamedTuple

from django.conf import settings
from rest_framework import serializers
from rest_framework.exceptions import ParseError
from rest_framework.fields import empty

from tidegauge.state_backends.reader.windows import MOST_WINDOWS
from tidegauge.webapp.api.fields import (
    EpochField,
    FlagField,
    KeysField,
    MeasuresField,
    Member,
    NumberField,
    StateField,
    TimeParameter,
    TooManyKeysError,
    TxidField,
    WindowsField,
    check_number_of_keys,
)

MAX_LOOKUPS = 20

KEYS = (
    "each key a list of its parts in the order of the state's key columns, `[]` for a state without any; where there "
    "is one column, its bare value will do. Timestamps, dates and uuids are text; a timestamp needs its offset"
)


class When(NamedTuple):
    """at_txid: answer as after this batch; None means the committed one. min_txid: wait for this one, wait_ms at most.

    at_time: instead of at_txid, the last batch whose time is not after this one. epoch: the ledger's epoch that both
    batches are of; None: the client does not say.
    """

    at_txid: int | None = None
    min_txid: int | None = None
    wait_ms: int = 0
    epoch: str | None = None
    at_time: datetime | None = None

    @property
    def is_past(self) -> bool:
        return self.at_txid is not None or self.at_time is not None


class Lookup(NamedTuple):
    """Keys of one state. keys: as the client wrote them. measures: None means all. combine: fold them into one.

    is_alone: one key, whose answer is not in a list of results.
    """

    state: str
    keys: list[Any]
    measures: list[str] | None = None
    combine: bool = False
    is_alone: bool = False


class LookupsField(Member, serializers.ListField):
    expected = f"a list of 1 to {MAX_LOOKUPS} lookups, each with its state and keys"

    def to_internal_value(self, data: Any) -> list[Lookup]:
        if not isinstance(data, list) or not 1 <= len(data) <= MAX_LOOKUPS:
            self.fail("invalid")
        lookups = [self._lookup(body, index) for index, body in enumerate(data)]
        check_number_of_keys(sum(len(lookup.keys) for lookup in lookups))
        return lookups

    def _lookup(self, body: Any, index: int) -> Lookup:
        try:
            return Lookup(**self.child.to_internal_value(body))
        except TooManyKeysError:
            raise
        except ParseError as error:
            raise ParseError(f"lookup {index}: {error}") from error


class RequestSerializer(serializers.Serializer):
    @classmethod
    def read(cls, data: Any) -> dict[str, Any]:
        """Return the values by field, without absent ones. Raises ParseError."""
        return _checker(cls).to_internal_value(data)

    @classmethod
    def names(cls) -> Iterable[str]:
        """Return the names of the fields."""
        return _checker(cls).fields


@cache
def _checker(kind: type[RequestSerializer]) -> RequestSerializer:
    # One per process: a new serializer copies its fields in 116 µs; the check of a lookup takes 3 µs (November 2026).
    return kind()


class BodySerializer(RequestSerializer):
    example = ""

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        if not isinstance(data, dict):
            raise ParseError(f"the body must be an object such as {self.example}")
        if not data.keys() <= self._members.keys():
            known = sorted(self._members)
            raise ParseError(f"unknown member {min(data.keys() - set(known))!r}; there are {', '.join(known)}")
        # DRF asks the absent fields, too.
        return {
            name: field.run_validation(data.get(name, empty))
            for name, field in self._members.items()
            if field.required or name in data
        }

    @cached_property
    def _members(self) -> dict[str, serializers.Field]:
        return dict(self.fields)


class KeysBody(BodySerializer):
    keys = KeysField(help_text=KEYS)
    measures = MeasuresField(required=False, allow_null=True, help_text="which to answer; all if absent")
    combine = FlagField(
        required=False, help_text="fold the values of all keys into one: counts add, distinct counts are unions"
    )


class WhenBody(BodySerializer):
    at_txid = TxidField(
        help_text="answer as after this batch, at whose time ttl is computed; null or absent: the committed one, now"
    )
    at_time = TimeParameter(allow_null=True, help_text="instead: the last batch whose time is not after this one")
    min_txid = TxidField(help_text="answer once this batch, or a later one, is committed")
    wait_ms = NumberField(
        0,
        lambda: settings.TIDEGAUGE_MAX_WAIT_MS,
        required=False,
        allow_null=True,
        help_text="milliseconds to wait for `min_txid` at most; as long as the server allows if absent",
    )
    epoch = EpochField()


class LookupSerializer(KeysBody, WhenBody):
    example = '{"keys": [["JFK", "AA"]]}'


class AskedWindowsSerializer(WhenBody):
    example = '{"keys": [["JFK"]], "windows": ["1h", "24h"]}'
    keys = KeysField(help_text=f"without the key column that holds the tile; {KEYS}")
    windows = WindowsField(
        max_length=MOST_WINDOWS, help_text="lengths of time that end at `to`, in seconds, minutes, hours or days: `7d`"
    )
    to = TimeParameter(
        allow_null=True,
        help_text="event time at which the windows end, moved back to the start of a tile; the database's clock if "
        "absent, or the time of the batch that `at_txid` names",
    )
    measures = MeasuresField(required=False, allow_null=True, help_text="which to answer; all if absent")


class LookupOfStateSerializer(KeysBody):
    example = '{"state": "totals", "keys": [[]]}'
    state = StateField()


class LookupsSerializer(WhenBody):
    example = '{"lookups": [{"state": "totals", ..}]}'
    lookups = LookupsField(
        child=LookupOfStateSerializer(), min_length=1, max_length=MAX_LOOKUPS, help_text="of states of one pipeline"
    )


def read_lookup(state: str, body: Any) -> tuple[Lookup, When]:
    """Return what the body of a lookup in one state asks. Raises ParseError."""
    asked = LookupSerializer.read(body)
    lookup = Lookup(state, asked["keys"], asked.get("measures"), asked.get("combine", False))
    return lookup, when_of(asked)


def read_lookups(body: Any) -> tuple[list[Lookup], When]:
    """Return what the body of a lookup in several states asks. Raises ParseError."""
    asked = LookupsSerializer.read(body)
    return asked["lookups"], when_of(asked)


def when_of(asked: Mapping[str, Any]) -> When:
    wait_ms = asked.get("wait_ms")
    check_moment(asked)
    return When(
        asked.get("at_txid"),
        asked.get("min_txid"),
        settings.TIDEGAUGE_MAX_WAIT_MS if wait_ms is None else wait_ms,
        asked.get("epoch"),
        asked.get("at_time"),
    )


def check_moment(asked: Mapping[str, Any]) -> None:
    """Raises ParseError if a request names its batch in two ways."""
    if asked.get("at_txid") is not None and asked.get("at_time") is not None:
        raise ParseError("at_txid and at_time both name a batch; send only one of them")
