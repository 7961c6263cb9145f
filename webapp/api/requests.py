"""What a client may send: bodies of lookups, and query parameters.

Each serializer both checks a request and describes it in /api/schema. The first wrong member ends the check with a
ParseError, a 400 that names the member. Unknown members of a body and unknown query parameters are refused.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property
from typing import Any, NamedTuple, NoReturn

import orjson
from django.conf import settings
from django.http import QueryDict
from drf_spectacular.drainage import set_override
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import ParseError
from rest_framework.fields import empty

from state_backends.reader.filters import MOST_FILTERS, OPERATORS
from webapp.api.rendering import parse_json
from webapp.states.models import MaintenanceRun
from webapp.states.series import Range

MAX_QUERIES, MAX_ENTRIES, MAX_VERSIONS, MAX_LIST = 20, 1_000, 1_000, 500
MAX_HOURS, MAX_USAGE = 400 * 24, 10_000
MAX_POINTS, MAX_SECONDS = 1_000, 10 * 366 * 86_400
LARGEST_TXID = 2**63 - 1
FIRST_YEAR, LAST_YEAR = 1970, 9000
FIRST_MOMENT = datetime(FIRST_YEAR, 1, 1, tzinfo=UTC)
COMMITTED = "committed"  # a value of `as_of`: the batch that is committed when the first page is read

KEYS = (
    "each key a list of its parts in the order of the state's key columns, `[]` for a state without any; where there "
    "is one column, its bare value will do. Timestamps, dates and uuids are text; a timestamp needs its offset"
)
AS_OF = "Answer as after this batch, its number; the newest committed one if absent"
MEASURES = "Names of the measures to answer, separated by commas; all if absent"
FIRST_PARTS = 'as a JSON list, `["JFK"]`; bare text is the first part alone'


class When(NamedTuple):
    """as_of: answer as after this batch; None means the committed one. min_txid: wait for this one, wait_ms at most.

    epoch: the ledger's epoch that both are of; None: the client does not say.
    """

    as_of: int | None = None
    min_txid: int | None = None
    wait_ms: int = 0
    epoch: str | None = None


class Query(NamedTuple):
    """Keys of one state. keys: as the client wrote them. measures: None means all. combine: fold them into one.

    is_alone: one key, whose answer is not in a list of results.
    """

    state: str
    keys: list[Any]
    measures: list[str] | None = None
    combine: bool = False
    is_alone: bool = False


# Fields


class Member(serializers.Field):
    """Base of fields whose errors are ParseErrors that name the field. expected: what the field must be.

    `to_internal_value` checks everything; the validators of DRF's fields are read by /api/schema only.
    """

    expected = ""

    def fail(self, key: str, **values: Any) -> NoReturn:
        raise ParseError(f"{self.field_name} must be {self.expected}")

    def run_validators(self, value: Any) -> None:
        pass


class JsonValue(serializers.JSONField):
    """Any JSON value."""


PART = {"oneOf": [{"type": kind} for kind in ("string", "number", "boolean")]}


@extend_schema_field(PART)
class KeyPart(serializers.JSONField):
    """One part of a key."""


@extend_schema_field({"oneOf": [{"type": "array", "items": PART}, *PART["oneOf"]]})
class SentKey(serializers.JSONField):
    """A key as clients may send it: its parts, or the bare value of its one part."""


class KeysField(Member, serializers.ListField):
    """Checks the list and its length only; the library checks the keys, column by column.

    DRF's check of 100 keys, one by one, takes 270 µs, and the whole lookup 670 µs (November 2026).
    """

    child = SentKey()
    expected = "a list of keys, each a list of its parts"

    def __init__(self, **options: Any) -> None:
        super().__init__(max_length=settings.TIDEMARK_LOOKUP_MAX_KEYS, **options)

    def to_internal_value(self, data: Any) -> list[Any]:
        if not isinstance(data, list):
            self.fail("invalid")
        check_number_of_keys(len(data))
        return data


class MeasuresField(Member, serializers.ListField):
    child = serializers.CharField()
    expected = "a list of names"

    def to_internal_value(self, data: Any) -> list[str]:
        if not isinstance(data, list) or not all(isinstance(measure, str) for measure in data):
            self.fail("invalid")
        return data


class FlagField(Member, serializers.BooleanField):
    expected = "true or false"

    def to_internal_value(self, data: Any) -> bool:
        return data if type(data) is bool else self.fail("invalid")


class NumberField(Member, serializers.IntegerField):
    """A whole number of a JSON body. most: may be a function, for a setting that is read at each request."""

    kind = "a whole number"

    def __init__(self, least: int, most: int | Callable[[], int], **options: Any) -> None:
        self._least, self._most = least, most
        super().__init__(min_value=least, max_value=most() if callable(most) else most, **options)

    def to_internal_value(self, data: Any) -> int:
        most = self._most() if callable(self._most) else self._most
        number = self._parsed(data)
        if number is None or not self._least <= number <= most:
            given = str(data)[:40]
            raise ParseError(f"{self.field_name} must be {self.kind} from {self._least} to {most}, got {given!r}")
        return number

    def _parsed(self, data: Any) -> int | None:
        return data if type(data) is int else None


class NumberParameter(NumberField):
    kind = "a number"

    def _parsed(self, data: str) -> int | None:
        # int() also accepts other digits, signs, blanks and underscores.
        return int(data) if data.isascii() and data.isdecimal() and len(data) < 20 else None


class TxidField(NumberField):
    """The number of a batch."""

    def __init__(self, **options: Any) -> None:
        super().__init__(0, LARGEST_TXID, required=False, allow_null=True, **options)


class StateField(Member, serializers.CharField):
    expected = "the name of a state"

    def to_internal_value(self, data: Any) -> str:
        return data if isinstance(data, str) and "\0" not in data else self.fail("invalid")


class EpochField(Member, serializers.CharField):
    """An epoch of the ledger, as an answer has it."""

    expected = "the epoch of an answer, which is text"

    def __init__(self) -> None:
        super().__init__(
            required=False,
            allow_null=True,
            allow_blank=True,
            help_text="the `epoch` of the answer that `min_txid` or `as_of` is from. If the ledger has another epoch "
            "now, the numbers are of other batches, and the answer is a 409",
        )

    def to_internal_value(self, data: Any) -> str:
        return data if isinstance(data, str) else self.fail("invalid")


class TextParameter(Member, serializers.CharField):
    def __init__(self, **options: Any) -> None:
        super().__init__(required=False, allow_blank=True, trim_whitespace=False, **options)

    def to_internal_value(self, data: str) -> Any:
        if "\0" in data:
            raise ParseError(f"{self.field_name} holds a NUL character")
        return data


class ChoiceParameter(TextParameter):
    """One of some names; empty text counts as absent."""

    def __init__(self, choices: list[str], **options: Any) -> None:
        super().__init__(**options)
        self._choices = choices
        set_override(self, "field", {"type": "string", "enum": [*choices, ""]})

    def to_internal_value(self, data: str) -> str:
        if super().to_internal_value(data) not in self._choices:
            raise ParseError(f"{self.field_name} must be one of {', '.join(self._choices)}, got {data!r}")
        return data


class TimeParameter(Member, serializers.DateTimeField):
    expected = "a time with its offset, as ISO 8601 writes it, from 1970 to 9000: 2026-11-20T07:09:00Z"

    def __init__(self, **options: Any) -> None:
        super().__init__(required=False, **options)

    def to_internal_value(self, data: Any) -> datetime:
        try:
            moment = datetime.fromisoformat(data)
        except ValueError:
            return self.fail("invalid")
        is_usable = moment.tzinfo is not None and FIRST_YEAR <= moment.year <= LAST_YEAR
        # PostgreSQL takes no offset of 16 hours or more.
        return moment.astimezone(UTC) if is_usable else self.fail("invalid")


class NamesParameter(TextParameter):
    """Names separated by commas; empty text gives None."""

    def run_validation(self, data: Any = empty) -> list[str] | None:
        names: str = super().run_validation(data)
        return names.split(",") if names else None


class KeyPartsParameter(TextParameter):
    """Leading key parts: a JSON list, or bare text for the first one alone."""

    def to_internal_value(self, data: str) -> Any:
        text: str = super().to_internal_value(data)
        if not text.startswith("["):
            return text
        try:
            return parse_json(text)
        except orjson.JSONDecodeError as error:
            raise ParseError(
                f"{self.field_name} starts as a JSON list but is not one: {error}; write it so, or as bare text for "
                "the first part"
            ) from None


class ConditionsParameter(Member, serializers.ListField):
    """Conditions on key columns and measures; may be given several times. The reader knows the columns."""

    child = serializers.CharField()

    def __init__(self, **options: Any) -> None:
        super().__init__(required=False, max_length=MOST_FILTERS, **options)

    def to_internal_value(self, data: Any) -> list[str]:
        if any("\0" in condition for condition in data):
            raise ParseError(f"{self.field_name} holds a NUL character")
        return list(data)


@extend_schema_field(
    {"oneOf": [{"type": "integer", "minimum": 0, "maximum": LARGEST_TXID}, {"type": "string", "enum": [COMMITTED]}]}
)
class AsOfParameter(NumberParameter):
    def to_internal_value(self, data: Any) -> Any:
        return COMMITTED if data == COMMITTED else super().to_internal_value(data)


class QueriesField(Member, serializers.ListField):
    expected = f"a list of 1 to {MAX_QUERIES} queries, each with its state and keys"

    def to_internal_value(self, data: Any) -> list[Query]:
        if not isinstance(data, list) or not 1 <= len(data) <= MAX_QUERIES:
            self.fail("invalid")
        queries = [self._query(body, index) for index, body in enumerate(data)]
        check_number_of_keys(sum(len(query.keys) for query in queries))
        return queries

    def _query(self, body: Any, index: int) -> Query:
        try:
            return Query(**self.child.to_internal_value(body))
        except TooManyKeysError:
            raise
        except ParseError as error:
            raise ParseError(f"query {index}: {error}") from error


class TooManyKeysError(ParseError):
    """members: max_keys is how many a request may have, so that a client can ask for that many at a time."""

    def __init__(self, keys: int, limit: int, instead: str = "ask for them in several requests") -> None:
        super().__init__(f"{keys} keys are over the limit of {limit}; {instead}")
        self.members = {"max_keys": limit}


def check_number_of_keys(keys: int) -> None:
    limit = settings.TIDEMARK_LOOKUP_MAX_KEYS
    if keys > limit:
        raise TooManyKeysError(keys, limit)


# Bodies


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
    as_of = TxidField(
        help_text="answer as after this batch, at whose time ttl is computed; null or absent: the committed one, now"
    )
    min_txid = TxidField(help_text="answer once this batch, or a later one, is committed")
    wait_ms = NumberField(
        0,
        lambda: settings.TIDEMARK_MAX_WAIT_MS,
        required=False,
        allow_null=True,
        help_text="milliseconds to wait for `min_txid` at most; as long as the server allows if absent",
    )
    epoch = EpochField()


class QuerySerializer(KeysBody, WhenBody):
    example = '{"keys": [["JFK", "AA"]]}'


class QueryOfStateSerializer(KeysBody):
    example = '{"state": "totals", "keys": [[]]}'
    state = StateField()


class QueriesSerializer(WhenBody):
    example = '{"queries": [{"state": "totals", ..}]}'
    queries = QueriesField(
        child=QueryOfStateSerializer(), min_length=1, max_length=MAX_QUERIES, help_text="of states of one pipeline"
    )


def read_query(state: str, body: Any) -> tuple[Query, When]:
    """Return what the body of a lookup in one state asks. Raises ParseError."""
    asked = QuerySerializer.read(body)
    query = Query(state, asked["keys"], asked.get("measures"), asked.get("combine", False))
    return query, _when(asked)


def read_queries(body: Any) -> tuple[list[Query], When]:
    """Return what the body of a lookup in several states asks. Raises ParseError."""
    asked = QueriesSerializer.read(body)
    return asked["queries"], _when(asked)


def _when(asked: Mapping[str, Any]) -> When:
    wait_ms = asked.get("wait_ms")
    return When(
        asked.get("as_of"),
        asked.get("min_txid"),
        settings.TIDEMARK_MAX_WAIT_MS if wait_ms is None else wait_ms,
        asked.get("epoch"),
    )


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


def parameters_of(kind: type[RequestSerializer] | None) -> Iterable[str]:
    return () if kind is None else _checker(kind).fields


class ListParameters(RequestSerializer):
    limit = NumberParameter(1, MAX_LIST, default=50, help_text="At most so many, the newest ones")


class RunsParameters(ListParameters):
    state = TextParameter(help_text="Runs of this state; of all if absent")
    kind = ChoiceParameter(MaintenanceRun.Kind.values, help_text="Runs of this kind; of all if absent")
    status = ChoiceParameter(MaintenanceRun.Status.values, help_text="Runs with this status; with any if absent")


class RangeParameters(RequestSerializer):
    """A range of the entries of a state."""

    prefix = KeyPartsParameter(help_text=f"The first parts of the keys, {FIRST_PARTS}")
    to = KeyPartsParameter(help_text=f"Keys before this one, {FIRST_PARTS}")
    as_of = AsOfParameter(
        0,
        LARGEST_TXID,
        required=False,
        help_text="Answer all pages as after this batch, its number; `committed`: as after the one that is committed "
        "when the first page is read",
    )
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
        help_text="The name of a measure, smallest first; with `-` before it largest first; key order if absent"
    )
    limit = NumberParameter(1, MAX_ENTRIES, required=False, help_text="At most so many entries; 50 if absent")
    cursor = TextParameter(help_text="`next` of the page before. It contains all parameters; only `limit` may differ")


class GroupsParameters(RangeParameters):
    by = NamesParameter(help_text="Names of the key columns to group by, separated by commas; one at least")
    as_of = AsOfParameter(0, LARGEST_TXID, required=False, help_text=AS_OF)
    order_by = TextParameter(
        help_text="The name of a measure, groups with the smallest first; with `-` before it largest first; in the "
        "order of the key columns if absent"
    )
    limit = NumberParameter(1, MAX_ENTRIES, default=50, help_text="At most so many groups")


class ExportParameters(RangeParameters):
    as_of = AsOfParameter(0, LARGEST_TXID, required=False, help_text=AS_OF)
    limit = NumberParameter(1, LARGEST_TXID, required=False, help_text="At most so many entries; all if absent")


class KeyPathParameters(RequestSerializer):
    """What a lookup of one key may have beside it: the members of the body of a bulk lookup."""

    measures = NamesParameter(help_text=MEASURES)
    as_of = NumberParameter(0, LARGEST_TXID, required=False, help_text=AS_OF)
    min_txid = NumberParameter(
        0, LARGEST_TXID, required=False, help_text="Answer once this batch, or a later one, is committed"
    )
    wait_ms = NumberParameter(
        0,
        lambda: settings.TIDEMARK_MAX_WAIT_MS,
        required=False,
        help_text="Milliseconds to wait for `min_txid` at most; as long as the server allows if absent",
    )
    epoch = EpochField()


class KeyParameters(KeyPathParameters):
    key = KeyPartsParameter(
        help_text='The key as a JSON list, `["JFK", "AA"]`; where there is one key column, its bare value. Not needed '
        "where there is none"
    )


def read_one(state: str, key: Any, asked: Mapping[str, Any]) -> tuple[Query, When]:
    """Return what a lookup of one key asks. asked: what `KeyPathParameters` read."""
    return Query(state, [key], asked.get("measures"), is_alone=True), _when(asked)


class HistoryParameters(RequestSerializer):
    key = KeyPartsParameter(
        help_text='The key as a JSON list, `["JFK", "AA"]`; where there is one key column, its bare value. Not needed '
        "where there is none"
    )
    limit = NumberParameter(1, MAX_VERSIONS, default=100, help_text="At most so many versions, the newest ones")
    before = NumberParameter(0, LARGEST_TXID, required=False, help_text="Only versions before this batch")


class SeriesParameters(RequestSerializer):
    to = TimeParameter(help_text="Up to this time; now if absent")
    last = NumberParameter(1, MAX_SECONDS, default=3_600, help_text="So many seconds before `to`, if `from` is absent")
    points = NumberParameter(10, MAX_POINTS, default=300, help_text="About so many points at most")

    def get_fields(self) -> dict[str, serializers.Field]:
        # `from` is a keyword of Python.
        return super().get_fields() | {"from": TimeParameter(help_text="From this time on; if absent, as `last` says")}


class KeySeriesParameters(SeriesParameters):
    key = KeyPartsParameter(
        help_text='The key as a JSON list, `["JFK", "AA"]`; where there is one key column, its bare value. Not needed '
        "where there is none"
    )
    measures = NamesParameter(help_text=MEASURES)


def read_range(asked: Mapping[str, Any]) -> Range:
    """Return the range of time that `SeriesParameters` read. Raises ParseError."""
    until = asked.get("to") or datetime.now(UTC)
    since = asked.get("from") or max(FIRST_MOMENT, until - timedelta(seconds=asked["last"]))
    if since >= until:
        raise ParseError(f"from must be before to, got {since.isoformat()!r} and {until.isoformat()!r}")
    return Range(since, until, asked["points"])


class UsageParameters(RequestSerializer):
    hours = NumberParameter(1, MAX_HOURS, default=24, help_text="So many hours back")
    key = TextParameter(help_text="Of this API key, by the eight characters after `tmk_`; of all if absent")
    state = TextParameter(help_text="Of this state; of all if absent")
    limit = NumberParameter(1, MAX_USAGE, default=1_000, help_text="At most so many rows, the newest ones")
