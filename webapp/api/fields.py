"""The fields of requests: each checks one member of a body, or one query parameter, and describes it in /api/schema.

A wrong one is a ParseError, a 400 that names it.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

import orjson
from django.conf import settings
from drf_spectacular.drainage import set_override
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import ParseError
from rest_framework.fields import empty

from tidegauge.state_backends.reader.filters import MOST_FILTERS
from tidegauge.state_backends.reader.windows import MOST_WINDOWS
from tidegauge.webapp.api.rendering import parse_json
from tidegauge.webapp.catalog.documents import LARGEST_TXID

FIRST_YEAR, LAST_YEAR = 1970, 9000
WINDOW, SECONDS = re.compile("([1-9][0-9]{0,7})([smhd])"), {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
FIRST_MOMENT = datetime(FIRST_YEAR, 1, 1, tzinfo=UTC)
COMMITTED = "committed"  # a value of `at_txid`: the batch that is committed when the first page is read


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
        super().__init__(max_length=settings.TIDEGAUGE_LOOKUP_MAX_KEYS, **options)

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


class WindowsField(Member, serializers.ListField):
    """Lengths of time, by the text that names them."""

    child = serializers.CharField()
    expected = "a list of 1 to 20 different windows such as '1h', '24h' or '7d', in s, m, h or d"

    def to_internal_value(self, data: Any) -> dict[str, timedelta]:
        if not isinstance(data, list) or not 1 <= len(data) <= MOST_WINDOWS:
            self.fail("invalid")
        found = [WINDOW.fullmatch(text) if isinstance(text, str) else None for text in data]
        lengths = {each[0]: timedelta(seconds=int(each[1]) * SECONDS[each[2]]) for each in found if each}
        return lengths if len(lengths) == len(data) else self.fail("invalid")


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
            help_text="the `epoch` of the answer that `min_txid` or `at_txid` is from. If the ledger has another epoch "
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
        except (TypeError, ValueError):
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
class AtTxidParameter(NumberParameter):
    def to_internal_value(self, data: Any) -> Any:
        return COMMITTED if data == COMMITTED else super().to_internal_value(data)


class TooManyKeysError(ParseError):
    """members: max_keys is how many a request may have, so that a client can ask for that many at a time."""

    def __init__(self, keys: int, limit: int, instead: str = "ask for them in several requests") -> None:
        super().__init__(f"{keys} keys are over the limit of {limit}; {instead}")
        self.members = {"max_keys": limit}


def check_number_of_keys(keys: int) -> None:
    limit = settings.TIDEGAUGE_LOOKUP_MAX_KEYS
    if keys > limit:
        raise TooManyKeysError(keys, limit)
