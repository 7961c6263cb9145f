"""What a client may send in the query of an address, and in the body of a call that takes one in its place.

Unknown query parameters are refused.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
from django.conf import settings
from django.http import QueryDict
from rest_framework import serializers
from rest_framework.exceptions import ParseError

from tidegauge.state_backends.reader.filters import OPERATORS
from tidegauge.webapp.api.fields import (
    FIRST_MOMENT,
    AtTxidParameter,
    ChoiceParameter,
    ConditionsParameter,
    EpochField,
    KeyPartsParameter,
    NamesParameter,
    NumberParameter,
    TextParameter,
    TimeParameter,
)
from tidegauge.webapp.api.requests import Lookup, RequestSerializer, When, when_of
from tidegauge.webapp.catalog.documents import LARGEST_TXID
from tidegauge.webapp.catalog.models import MaintenanceRun
from tidegauge.webapp.catalog.series import TimeRange

MAX_ENTRIES, MAX_VERSIONS, MAX_LIST = 1_000, 1_000, 500
MAX_HOURS, MAX_USAGE = 400 * 24, 10_000
MAX_POINTS, MAX_SECONDS = 1_000, 10 * 366 * 86_400

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
    return () if kind is None else kind.names()


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
