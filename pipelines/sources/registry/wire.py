"""Decodes messages in the wire format of schema registries (Avro, Protobuf and JSON Schema) to JSON.

    0 | schema id, 4 bytes | the record          (Protobuf: the index of the message in its file before the record)

A record becomes a JSON object, which is then parsed like any other, with the same types and the same reasons if a value
does not fit. Numbers keep all their digits. Bytes are in base 64, times are ISO 8601 in UTC, enums are their names.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from datetime import time as clock
from functools import lru_cache
from io import BytesIO
from typing import Any

from tidegauge.pipelines.sources.registry.schemas import RegisteredSchema, Registry, UnknownSchemaError
from tidegauge.state_backends.errors import MissingPackageError
from tidegauge.state_backends.extras import naming_the_extra

MAGIC, PREFIX_BYTES = 0, 5
REASON_CHARACTERS = 200

Decode = Callable[[bytes], Any]


class UndecodableError(Exception):
    """A message that does not match its schema."""


@dataclass(frozen=True)
class Decoder:
    """Turns messages into JSON texts, on executors."""

    registry: Registry

    def __call__(self, message: bytes | None) -> tuple[str | None, str | None] | None:
        """Return a message as a JSON text, or an empty text and the reason why it cannot be read. None stays None."""
        if message is None:
            return None
        try:
            return self._decoded(bytes(message)), None
        except UndecodableError as error:
            return "", str(error)[:REASON_CHARACTERS]

    def _decoded(self, message: bytes) -> str:
        if len(message) < PREFIX_BYTES or message[0] != MAGIC:
            raise UndecodableError("no byte 0 and schema id before the record: not written with a registry")
        number = int.from_bytes(message[1:PREFIX_BYTES], "big")
        try:
            schema = self.registry.schema(number)
        except UnknownSchemaError:
            raise UndecodableError(f"schema {number}: the registry does not have it") from None
        references = tuple(schema.references.items())
        try:
            return _decoder(schema.kind, schema.text, references, self.registry.reader_schema)(message[PREFIX_BYTES:])
        except MissingPackageError:
            raise  # because it is no fault of the message
        except UndecodableError as error:
            raise UndecodableError(f"schema {number}: {error}") from None
        except Exception as error:
            # Any exception, because libraries raise various ones for bytes that do not match.
            raise UndecodableError(f"schema {number}: {type(error).__name__}: {error}") from None


@lru_cache(1_000)
def _decoder(
    kind: str, text: str, references: tuple[tuple[str, str], ...], reader_schema: str | None
) -> Callable[[bytes], str]:
    schema = RegisteredSchema(kind, text, dict(references))
    with naming_the_extra():
        match kind:
            case "AVRO":
                decode = _avro(schema, reader_schema)
            case "PROTOBUF":
                decode = _protobuf(schema)
            case "JSON":
                return _json
            case _:
                raise UndecodableError(f"is of type {kind!r}; AVRO, PROTOBUF and JSON can be read")
    return lambda record: json.dumps(decode(record), default=_as_json, ensure_ascii=False)


def _json(record: bytes) -> str:
    try:
        return record.decode()
    except UnicodeDecodeError:
        raise UndecodableError("not UTF-8") from None


def _avro(schema: RegisteredSchema, reader_schema: str | None) -> Decode:
    import fastavro

    known: dict[str, Any] = {}
    for text in schema.references.values():
        fastavro.parse_schema(json.loads(text), known)
    # Without `known`, because a reader's schema has its own names.
    reader = None if reader_schema is None else fastavro.parse_schema(json.loads(reader_schema))
    writer = fastavro.parse_schema(json.loads(schema.text), known)

    def decode(record: bytes) -> Any:
        stream = BytesIO(record)
        found = fastavro.schemaless_reader(stream, writer, reader)
        if stream.read(1):
            raise UndecodableError(f"{len(record) - stream.tell() + 1} bytes are left after the record")
        return found

    return decode


def _protobuf(schema: RegisteredSchema) -> Decode:
    from google.protobuf import message_factory

    file = _file(schema)

    def decode(record: bytes) -> Any:
        indexes, start = _message_index(record)
        kind = file.message_types_by_name[list(file.message_types_by_name)[indexes[0]]]
        for index in indexes[1:]:
            kind = kind.nested_types[index]
        message = message_factory.GetMessageClass(kind)()
        message.ParseFromString(record[start:])
        return _fields(message)

    return decode


def _file(schema: RegisteredSchema) -> Any:
    """Return the descriptor of a schema's file, with those that it imports. The library contains Google's own."""
    from google.protobuf import descriptor_pb2, descriptor_pool

    pool = descriptor_pool.DescriptorPool()

    def add(name: str, serialized: bytes) -> None:
        file = descriptor_pb2.FileDescriptorProto.FromString(serialized)
        file.name = name
        for needed in file.dependency:
            if needed.startswith("google/protobuf/") and needed not in schema.references:
                add_own(needed)
        pool.Add(file)

    def add_own(name: str) -> None:
        module = __import__("google.protobuf", fromlist=[f"{name.rpartition('/')[2].removesuffix('.proto')}_pb2"])
        own = getattr(module, f"{name.rpartition('/')[2].removesuffix('.proto')}_pb2")
        for needed in own.DESCRIPTOR.dependencies:
            add_own(needed.name)
        pool.AddSerializedFile(own.DESCRIPTOR.serialized_pb)

    for name, text in schema.references.items():
        add(name, b64decode(text))
    add("the schema.proto", b64decode(schema.text))
    return pool.FindFileByName("the schema.proto")


def _message_index(record: bytes) -> tuple[list[int], int]:
    """Return the indexes of a record's type in its file, by level, and where the record begins. Count 0 means [0]."""
    numbers = _zigzags(record)
    count, start = next(numbers)
    indexes = [0] if count == 0 else []
    for _ in range(count):
        index, start = next(numbers)
        indexes.append(index)
    return indexes, start


def _zigzags(record: bytes) -> Iterator[tuple[int, int]]:
    """Yield each variable-length number, and where the next one begins."""
    number = shift = 0
    for place, byte in enumerate(record, start=1):
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield (number >> 1) ^ -(number & 1), place
            number = shift = 0
    raise UndecodableError("ends within the index of its message")


def _fields(message: Any) -> Any:
    """Return a message as a dict: fields by the names in the schema, those without presence with their defaults."""
    from google.protobuf import json_format

    if message.DESCRIPTOR.file.package == "google.protobuf":
        return json_format.MessageToDict(message)  # because times, wrappers and the like have JSON forms of their own
    return {field.name: _value(message, field) for field in message.DESCRIPTOR.fields}


def _value(message: Any, field: Any) -> Any:
    if field.has_presence and not message.HasField(field.name):
        return None
    value = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        kind = field.message_type.fields_by_name["value"]
        return {str(key): _single(each, kind) for key, each in value.items()}
    return [_single(each, field) for each in value] if field.is_repeated else _single(value, field)


def _single(value: Any, field: Any) -> Any:
    if field.message_type is not None:
        return _fields(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return value if known is None else known.name
    return value


def _as_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z") if value.tzinfo else value.isoformat()
    if isinstance(value, date | clock):
        return value.isoformat()
    return str(value)  # a decimal with all its digits, a UUID
