r"""Exact: detects values that Spark would silently change while parsing.

Spark rounds a decimal to the scale of its column, drops digits after the microseconds and text after a date, reads
1e400 as infinity, and adds today's date to a time of day. Each of these is a misfit here and makes its row bad, so that
no sum is silently wrong. Because misfits are rare, a line is first searched for signs of one, in its text and in the
values that Spark has read, and only a suspicious line is read a second time.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from operator import or_

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

FLOATS, TIMES = (DoubleType, FloatType), (TimestampType, TimestampNTZType)

# A variant holds a number of up to 38 digits exactly, but a longer one, or one with an exponent, as a double.
VARIANT_DIGITS, DOUBLE_DIGITS = 38, 15
LAST_SECOND = 253_402_300_799  # of the year 9999, since 1970

NUMBER = r"^\s*[-+]?([0-9]*)\.?([0-9]*)(?:[eE]([-+]?[0-9]+))?\s*$"
TOO_LONG = rf"(?:[0-9]\.?){{{VARIANT_DIGITS + 1}}}"
# Digits after the microseconds, or a time without a date.
NO_TIMESTAMP = r"\.[0-9]{6}[0-9]*[1-9]|^\s*T?[0-9]{1,2}:"
ZONE = r":[0-9.]*\s*[-+A-Za-z]"
AFTER_DATE = r"^\s*[-+]?[0-9]+-[0-9]+-[0-9]+\s*[T ]\s*\S"
MIDNIGHT = r"[T ]00?:00(:00(\.0+)?)?\s*(Z|UTC|[-+]00(:?00)?)?\s*$"

# The form of nearly every time and date. Its cast is exact, and gives what Spark's JSON and CSV parsers would read.
PLAIN_DATE = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
PLAIN_TIME = rf"{PLAIN_DATE}[T ][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(?:\.[0-9]{{1,6}})?"
PLAIN: dict[type[DataType], str] = {
    DateType: f"^{PLAIN_DATE}$",
    TimestampType: f"^{PLAIN_TIME}(?:Z|[-+][0-9]{{2}}:[0-9]{{2}})?$",
    TimestampNTZType: f"^{PLAIN_TIME}$",
}

# What a number with a fraction, or one that Spark takes for infinite, looks like after Spark has read it as text.
WRITTEN_NUMBER = r'^(?:-?[0-9]+(?:\.[0-9]+(?:E-?[0-9]+)?|E-?[0-9]+)|"-?(?:Infinity|NaN)")$'
# Spark replaces half a surrogate pair by a question mark; a variant cannot hold it.
SURROGATE = (r"\\u[dD][89a-fA-F]",)

# What makes the text of a line suspicious, per type: a digit too many, a time without its date, text after a date.
# These must not match what most lines have, because a suspicious line is read a second time, at twice the cost of the
# first. So a time is found only where it begins with its hour: minutes follow an hour, and hours follow a date. Each
# pattern is searched for by itself, because Java tries all branches of one pattern at every character.
BEGINS_WITH_HOUR = r"(?<=(?:^|[^-+0-9T:\s]|(?:^|[^0-9])\sT?|(?:^|[^0-9\s])T)[0-9]{1,2}:)"
TIME_IN_LINE = (rf"[0-9]:(?:[0-9]{{1,2}}\.[0-9]{{7}}|{BEGINS_WITH_HOUR})", r"[0-9]{13}", r"\\u00")
DATE_IN_LINE = (r"-[0-9]{1,2}\s*[T ]",)

UNREAD = "_unread"

Predicate = Callable[[Column, DataType], Column | None]


def text_misfit(text: Column, kind: DataType) -> Column | None:
    """Return the condition that Spark's cast changes the value of a text; None if it never does.

    It need not hold for a text that is not of the type at all, because the cast of that is null.
    """
    if isinstance(kind, DecimalType):
        return text.rlike(_places_in_line(kind)) & _has_more_places(text, kind.scale)
    if isinstance(kind, FLOATS):
        return (F.abs(text.try_cast(kind)) == F.lit(float("inf"))) & text.rlike("[0-9]")
    if isinstance(kind, TimestampNTZType):
        return text.rlike(NO_TIMESTAMP) | text.rlike(ZONE)
    if isinstance(kind, TimestampType):
        return text.rlike(NO_TIMESTAMP)
    if isinstance(kind, DateType):
        return text.rlike(AFTER_DATE) & ~text.rlike(MIDNIGHT)
    return None


def plain_times(schema: StructType) -> dict[str, DataType]:
    """Return the columns that may be read as texts, name to type: times and dates that are not nested in a value."""
    return {field.name: field.dataType for field in schema if type(field.dataType) in PLAIN}


def is_plain_time(text: Column, kind: DataType) -> Column:
    """Return the condition that a text is absent, or is a time or date that its cast reads exactly."""
    return F.coalesce(text.isNull() | (text.rlike(PLAIN[type(kind)]) & text.try_cast(kind).isNotNull()), F.lit(False))


def json_misfit(line: str, row: Column, schema: StructType, not_plain: Column | None = None) -> Column | None:
    """Return the condition that a value of `row`, which Spark read from a JSON text, is not the one in the text.

    line: the column of the text. not_plain: whether one of its `plain_times`, which `row` then holds as texts, is not
    plain; without it the line is searched for them. Returns None if Spark can change no value of the schema.
    """
    suspicious = _suspicious(line, row, schema, not_plain)
    exact = _exact_schema(schema)
    if suspicious is None or not isinstance(exact, StructType):
        return None

    def is_wrong(read: Column) -> Column:
        wrong = _any(read, schema, lambda value, kind: _variant_misfit(F.col(line), value, kind))
        return F.coalesce(_or([wrong, read.getField(UNREAD).isNotNull()]), F.lit(True))  # type: ignore[arg-type]

    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": UNREAD, "allowSingleQuotes": "false"}
    return suspicious & _holds(is_wrong, F.from_json(line, exact.add(UNREAD, "string"), options))


def csv_misfit(line: str, texts: Column, row: Column, schema: StructType, not_plain: Column) -> Column | None:
    """Return the condition that a value of `row`, which Spark read from a CSV line, is not the one in the line.

    texts: the struct of the line's fields as texts. not_plain: as for json_misfit.
    """
    suspicious = _suspicious(line, row, schema, not_plain)
    if suspicious is None:
        return None

    def is_wrong(read: Column) -> Column:
        wrong = _any(read, schema, text_misfit)
        return F.lit(False) if wrong is None else wrong

    return suspicious & _holds(is_wrong, texts)


def _holds(condition: Callable[[Column], Column], read: Column) -> Column:
    """Return whether a condition holds for a second reading of a line, which is evaluated once."""
    # With zip_with, because Spark writes no Java code for it. The code of this condition, which hardly any line needs,
    # took a tenth of the time of a small batch's task.
    return F.element_at(F.zip_with(F.array(read), F.array(F.lit(True)), lambda row, _: condition(row)), 1)


def _suspicious(line: str, row: Column, schema: StructType, not_plain: Column | None) -> Column | None:
    times = {} if not_plain is None else plain_times(schema)
    others = StructType([field for field in schema if field.name not in times])
    return _or([not_plain if times else None, _any(row, others, _looks_wrong), _search(line, row, others)])


def _or(conditions: Iterable[Column | None]) -> Column | None:
    known = [F.coalesce(each, F.lit(False)) for each in conditions if each is not None]
    return reduce(or_, known) if known else None


def _any(value: Column, kind: DataType, predicate: Predicate) -> Column | None:
    """Return whether the predicate holds for any value inside `value`; None if it never does."""
    if isinstance(kind, StructType):
        return _or(_any(fields, each, predicate) for fields, each in _by_type(value, kind))
    if isinstance(kind, MapType):
        return _any(F.map_values(value), ArrayType(kind.valueType), predicate)
    if isinstance(kind, ArrayType):
        if _any(F.lit(None), kind.elementType, predicate) is None:
            return None
        return F.exists(value, lambda element: _or([_any(element, kind.elementType, predicate)]))  # type: ignore
    return predicate(value, kind)


def _by_type(row: Column, schema: StructType) -> Iterator[tuple[Column, DataType]]:
    """Yield the fields of each type with it, several as one list, because Spark plans each condition in every batch."""
    values: dict[DataType, list[Column]] = defaultdict(list)
    for field in schema:
        values[field.dataType].append(row.getField(field.name))
    for kind, fields in values.items():
        yield (fields[0], kind) if len(fields) == 1 else (F.array(*fields), ArrayType(kind))


def _leaves(kind: DataType) -> Iterator[DataType]:
    if isinstance(kind, StructType):
        for field in kind:
            yield from _leaves(field.dataType)
    elif isinstance(kind, ArrayType):
        yield from _leaves(kind.elementType)
    elif isinstance(kind, MapType):
        yield from _leaves(kind.valueType)
    else:
        yield kind


def _search(line: str, row: Column, schema: StructType) -> Column | None:
    patterns = {pattern for kind in _leaves(schema) for pattern in _in_line(kind)}
    return _or(_found(F.col(line), pattern, row, schema) for pattern in sorted(patterns))


def _found(line: Column, pattern: str, row: Column, schema: StructType) -> Column:
    found = line.rlike(pattern)
    if pattern.startswith(r"\\u"):
        # Bytes first, because a regular expression takes up to a quarter of the parse.
        found = line.contains(r"\u") & found
    if pattern in SURROGATE and not _has_keys(schema):
        # Values before that, because they are shorter than the line.
        found = _any(row, schema, _may_have_lost_half) & found  # type: ignore[operator]
    return found


def _may_have_lost_half(value: Column, kind: DataType) -> Column | None:
    """Return whether a text may have held half a surrogate pair; Spark keeps objects and lists as they are written."""
    if not isinstance(kind, StringType):
        return None
    return value.contains("?") | value.startswith("{") | value.startswith("[")


def _has_keys(kind: DataType) -> bool:
    """Return whether a type has maps, whose keys are texts."""
    if isinstance(kind, StructType):
        return any(_has_keys(field.dataType) for field in kind)
    return isinstance(kind, MapType) or (isinstance(kind, ArrayType) and _has_keys(kind.elementType))


def _in_line(kind: DataType) -> Iterable[str]:
    if isinstance(kind, DecimalType):
        return (_places_in_line(kind),)
    if isinstance(kind, TIMES):
        return TIME_IN_LINE
    if isinstance(kind, StringType):
        return SURROGATE
    return DATE_IN_LINE if isinstance(kind, DateType) else ()


def _places_in_line(kind: DecimalType) -> str:
    return rf"\.[0-9]{{{kind.scale + 1}}}|[0-9.][eE]"


def _looks_wrong(value: Column, kind: DataType) -> Column | None:
    """Return whether a value that Spark has read may differ from what was written, judged by the value alone."""
    if isinstance(kind, FLOATS):
        return F.abs(value) == F.lit(float("inf"))
    if isinstance(kind, ByteType):
        return value < 0  # because Spark reads 200 as -56
    return _is_written_number(value, kind) if isinstance(kind, StringType) else None


def _is_written_number(text: Column, kind: StringType) -> Column:
    may_be_one = text.contains(".") | text.contains("E") | text.endswith('"')
    if kind == StringType():  # because a collation may put digits after a colon
        # By its first byte first, which is a quote, a minus or a digit, because most texts begin with a letter.
        may_be_one = (text < ":") & may_be_one
    return may_be_one & text.rlike(WRITTEN_NUMBER)


def _exact_schema(kind: DataType) -> DataType | None:
    """Return the type with a variant in the place of every value that Spark may change; None if there is none."""
    if isinstance(kind, StructType):
        fields = [(field.name, _exact_schema(field.dataType)) for field in kind]
        exact = StructType()
        for name, inner in fields:
            exact = exact if inner is None else exact.add(name, inner)
        return exact if len(exact) else None
    if isinstance(kind, ArrayType):
        element = _exact_schema(kind.elementType)
        return None if element is None else ArrayType(element)
    if isinstance(kind, MapType):
        value = _exact_schema(kind.valueType)
        return None if value is None else MapType(StringType(), value)
    lossy = (DecimalType, DateType, ByteType, StringType, *FLOATS, *TIMES)
    return VariantType() if isinstance(kind, lossy) else None


def _variant_misfit(line: Column, value: Column, kind: DataType) -> Column | None:
    """Return whether Spark changes a JSON value, given as a variant, which holds it as it was written."""
    text, form = F.try_variant_get(value, "$", "string"), F.schema_of_variant(value)
    is_text, is_double = form == "STRING", form == "DOUBLE"
    if isinstance(kind, DecimalType):
        digits = F.length(F.regexp_replace(F.regexp_replace(text, "E.*$", ""), "[^0-9]", ""))
        is_rounded = is_double & ((digits > DOUBLE_DIGITS) | line.rlike(TOO_LONG))
        return is_rounded | _has_more_places(text, kind.scale)
    if isinstance(kind, StringType):
        return is_double | form.rlike(r"^DECIMAL.[0-9]+,[1-9]")
    if isinstance(kind, FLOATS):
        return ~is_text & (F.abs(text.try_cast(kind)) == F.lit(float("inf")))
    if isinstance(kind, ByteType):
        return text.try_cast("bigint") > 127
    if isinstance(kind, TIMES):
        is_too_far = F.abs(text.try_cast("decimal(38,0)")) > LAST_SECOND
        return F.when(is_text, text_misfit(text, kind)).otherwise(is_too_far)
    return text_misfit(text, kind)


def _has_more_places(text: Column, scale: int) -> Column:
    """Return whether a number has more decimal places than `scale`; exponents count, trailing zeros do not."""
    whole, fraction, exponent = (F.regexp_extract(text, NUMBER, group) for group in (1, 2, 3))
    digits = F.concat(whole, fraction)
    significant = F.regexp_replace(digits, "0+$", "")
    power = F.when(exponent == "", 0).otherwise(exponent.try_cast("int"))
    places = F.length(fraction) - power - (F.length(digits) - F.length(significant))
    return (significant != "") & F.coalesce(places > scale, F.lit(True))
