"""What a client may send: bodies of lookups, and query parameters.

Each serializer both checks a request and describes it in /api/schema. The first wrong member ends the check with a
ParseError, a 400 that names the member. Unknown members of a body and unknown query parameters are refused.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property
from typing import Any, NamedTuple

import orjson
from django.conf import settings
from django.http import QueryDict
from rest_framework import serializers
from rest_framework.exceptions import ParseError
from rest_framework.fields import empty

from tidegauge.state_backends.reader.filters import OPERATORS
from tidegauge.state_backends.reader.windows import MOST_WINDOWS
from tidegauge.webapp.api.fields import (
    FIRST_MOMENT,
    AtTxidParameter,
    ChoiceParameter,
    ConditionsParameter,
    EpochField,
    FlagField,
    KeyPartsParameter,
    KeysField,
    MeasuresField,
    Member,
    NamesParameter,
    NumberField,
    NumberParameter,
    StateField,
    TextParameter,
    TimeParameter,
    TooManyKeysError,
    TxidField,
    WindowsField,
    check_number_of_keys,
)
from tidegauge.webapp.catalog.documents import LARGEST_TXID
from tidegauge.webapp.catalog.models import MaintenanceRun
from tidegauge.webapp.catalog.series import TimeRange

MAX_LOOKUPS, MAX_ENTRIES, MAX_VERSIONS, MAX_LIST = 20, 1_000, 1_000, 500
MAX_HOURS, MAX_USAGE = 400 * 24, 10_000
MAX_POINTS, MAX_SECONDS = 1_000, 10 * 366 * 86_400

KEYS = (
    "each key a list of its parts in the order of the state's key columns, `[]` for a state without any; where there "
    "is one column, its bare value will do. Timestamps, dates and uuids are text; a timestamp needs its offset"
)
KEY = (
    'The key as a JSON list, `["JFK", "AA"]`; where there is one key column, its bare value. Not needed where there is '
    "none"
)
AT_TXID = "Answer as after this batch, its number; the newest committed one if absent"
CURSOR = "`next` of the page before. It contains all parameters; only `limit` may differ"
FORMAT = "The format, in place of that in the header `Accept`, which links do not have; CSV if neither says one"
AT_TIME = "Answer as after the last batch whose time is not after this one, instead of `at_txid`"
MEASURES = "Names of the measures to answer, separated by commas; all if absent"
FIRST_PARTS = 'as a JSON list, `["JFK"]`; bare text is the first part alone'


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


# Query parameters


class UnknownParameterError(ParseError):
    """A query parameter has a name that the call does not know, so what it was meant to change would stay as it is."""


def check_parameters(given: Iterable[str], known: Iterable[str]) -> None:
    """Raises UnknownParameterError, naming the unknown ones and all that the call knows."""
    known = sorted(known)
    unknown = sorted(set(given) - set(known))
    if unknown:
        names = ", ".join(repr(name[:40]) for name in unknown[:5])
        raise UnknownParameterError(f"unknown parameter {names}; there are {', '.join(known) or 'none'}")


def parameters_in(query: QueryDict) -> dict[str, Any]:
    """Return the parameters of an address: the last value of each, but all values of `where`."""
    repeated = {"where": query.getlist("where")} if "where" in query else {}
    return query.dict() | repeated


# Parameters that are lists of names or conditions.
LISTS_OF_TEXT = ("where", "measures", "by")


def parameters_in_body(kind: type[RequestSerializer], body: Any) -> dict[str, Any]:
    """Return the members of a body as `parameters_in` returns those of an address.

    Raises UnknownParameterError for one that `kind` does not have, and ParseError.
    """
    if not isinstance(body, dict):
        raise ParseError('the body must be an object with the parameters as members, such as {"where": ["flights>9"]}')
    check_parameters(body, parameters_of(kind))
    return {name: _as_in_address(name, value) for name, value in body.items()}


def _as_in_address(name: str, value: Any) -> Any:
    if name in LISTS_OF_TEXT and isinstance(value, list) and all(isinstance(each, str) for each in value):
        return value if name == "where" else ",".join(value)
    if isinstance(value, str) and name != "where":
        return value
    if name in LISTS_OF_TEXT:
        raise ParseError(f"{name} must be a list of texts")
    if type(value) is int:
        return str(value)
    if isinstance(value, list):
        return orjson.dumps(value).decode()
    raise ParseError(f"{name} must be text, a whole number or a list")


def parameters_of(kind: type[RequestSerializer] | None) -> Iterable[str]:
    return () if kind is None else _checker(kind).fields


class ListParameters(RequestSerializer):
    limit = NumberParameter(1, MAX_LIST, default=50, help_text="At most so many, the newest ones")
    cursor = TextParameter(help_text=CURSOR)


class RunsParameters(ListParameters):
    state = TextParameter(help_text="Runs of this state; of all if absent")
    kind = ChoiceParameter(MaintenanceRun.Kind.values, help_text="Runs of this kind; of all if absent")
    status = ChoiceParameter(MaintenanceRun.Status.values, help_text="Runs with this status; with any if absent")


class RangeParameters(RequestSerializer):
    """A range of the entries of a state."""

    prefix = KeyPartsParameter(help_text=f"The first parts of the keys, {FIRST_PARTS}")
    to = KeyPartsParameter(help_text=f"Keys before this one, {FIRST_PARTS}")
    at_txid = AtTxidParameter(
        0,
        LARGEST_TXID,
        required=False,
        help_text="Answer all pages as after this batch, its number; `committed`: as after the one that is committed "
        "when the first page is read",
    )
    at_time = TimeParameter(help_text=AT_TIME)
    measures = NamesParameter(help_text=MEASURES)
    where = ConditionsParameter(
        help_text="A condition on a measure or a key column, `flights>1000`; given several times, all of them apply. "
        f"Operators: {', '.join(f'`{operator}`' for operator in OPERATORS)}; `in` takes a JSON list. A null meets "
        "`is null` alone"
    )

    def get_fields(self) -> dict[str, serializers.Field]:
        # `from` is a keyword of Python.
        return super().get_fields() | {"from": KeyPartsParameter(help_text=f"Keys from here on, {FIRST_PARTS}")}


class EntriesParameters(RangeParameters):
    search = TextParameter(help_text="Only keys with a part that begins with this text, in upper or lower case")
    order_by = TextParameter(
        help_text="A measure or key column, smallest first; with `-` before it largest first; key order if absent"
    )
    limit = NumberParameter(1, MAX_ENTRIES, required=False, help_text="At most so many entries; 50 if absent")
    cursor = TextParameter(help_text=CURSOR)


class GroupsParameters(RangeParameters):
    by = NamesParameter(help_text="Names of the key columns to group by, separated by commas; one at least")
    at_txid = AtTxidParameter(0, LARGEST_TXID, required=False, help_text=AT_TXID)
    order_by = TextParameter(
        help_text="The name of a measure, groups with the smallest first; with `-` before it largest first; in the "
        "order of the key columns if absent"
    )
    limit = NumberParameter(1, MAX_ENTRIES, default=50, help_text="At most so many groups")


class ExportParameters(RangeParameters):
    format = ChoiceParameter(["csv", "ndjson", "arrow"], help_text=FORMAT)
    at_txid = AtTxidParameter(0, LARGEST_TXID, required=False, help_text=AT_TXID)
    limit = NumberParameter(1, LARGEST_TXID, required=False, help_text="At most so many entries; all if absent")


class KeyParameters(RequestSerializer):
    """A lookup of one key: the key, and the other members of the body of a bulk lookup."""

    key = KeyPartsParameter(help_text=KEY)
    measures = NamesParameter(help_text=MEASURES)
    at_txid = NumberParameter(0, LARGEST_TXID, required=False, help_text=AT_TXID)
    at_time = TimeParameter(help_text=AT_TIME)
    min_txid = NumberParameter(
        0, LARGEST_TXID, required=False, help_text="Answer once this batch, or a later one, is committed"
    )
    wait_ms = NumberParameter(
        0,
        lambda: settings.TIDEGAUGE_MAX_WAIT_MS,
        required=False,
        help_text="Milliseconds to wait for `min_txid` at most; as long as the server allows if absent",
    )
    epoch = EpochField()


def read_one(state: str, key: Any, asked: Mapping[str, Any]) -> tuple[Lookup, When]:
    """Return what a lookup of one key asks. asked: what `KeyParameters` read."""
    return Lookup(state, [key], asked.get("measures"), is_alone=True), when_of(asked)


class HistoryParameters(RequestSerializer):
    key = KeyPartsParameter(help_text=KEY)
    limit = NumberParameter(1, MAX_VERSIONS, default=100, help_text="At most so many versions, the newest ones")
    cursor = TextParameter(help_text="`next` of the page before, sent with the same key")


class SeriesParameters(RequestSerializer):
    to = TimeParameter(help_text="Up to this time; now if absent")
    last = NumberParameter(1, MAX_SECONDS, default=3_600, help_text="So many seconds before `to`, if `from` is absent")
    points = NumberParameter(10, MAX_POINTS, default=300, help_text="About so many points at most")

    def get_fields(self) -> dict[str, serializers.Field]:
        # `from` is a keyword of Python.
        return super().get_fields() | {"from": TimeParameter(help_text="From this time on; if absent, as `last` says")}


class KeySeriesParameters(SeriesParameters):
    key = KeyPartsParameter(help_text=KEY)
    measures = NamesParameter(help_text=MEASURES)


def read_range(asked: Mapping[str, Any]) -> TimeRange:
    """Return the range of time that `SeriesParameters` read. Raises ParseError."""
    until = asked.get("to") or datetime.now(UTC)
    since = asked.get("from") or max(FIRST_MOMENT, until - timedelta(seconds=asked["last"]))
    if since >= until:
        raise ParseError(f"from must be before to, got {since.isoformat()!r} and {until.isoformat()!r}")
    return TimeRange(since, until, asked["points"])


class UsageParameters(RequestSerializer):
    hours = NumberParameter(1, MAX_HOURS, required=False, help_text="So many hours back; 24 if absent")
    key = TextParameter(help_text="Of this API key, by the eight characters after `tmk_`; of all if absent")
    state = TextParameter(help_text="Of this state; of all if absent")
    limit = NumberParameter(1, MAX_USAGE, default=1_000, help_text="At most so many rows in a page")
    cursor = TextParameter(help_text=CURSOR)
