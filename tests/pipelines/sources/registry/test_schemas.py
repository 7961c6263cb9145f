"""Messages of a schema registry become the JSON that their schema says, or name what is wrong with them."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from tests.pipelines.sources.schema_registry import avro, on_wire, record, running_registry
from tidegauge.pipelines.errors import PipelineError, SourceUnavailableError
from tidegauge.pipelines.sources.registry import schemas as registry_module
from tidegauge.pipelines.sources.registry.schemas import Registry
from tidegauge.pipelines.sources.registry.wire import Decoder

pytest.importorskip("fastavro", reason="needs the extra `registry`")
descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2", reason="needs the extra `registry`")

SECRET = "secret-of-the-tests"
PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 18, "scale": 2}
AT = {"type": "long", "logicalType": "timestamp-micros"}


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(registry_module, "PAUSE_SECONDS", 0.0)
    with running_registry() as running:
        yield running


@pytest.fixture
def decode(server):
    decoder = Decoder(Registry(server.url))

    def decode(message):
        text, problem = decoder(message)
        assert (text == "") == (problem is not None)
        return problem or json.loads(text)

    return decode


def test_avro_keeps_every_value_as_it_was_written(server, decode):
    kinds = record("kinds", n="long", price=PRICE, at=AT, day={"type": "int", "logicalType": "date"}, raw="bytes",
                   maybe=["null", "string"], tags={"type": "array", "items": "string"},
                   kind={"type": "enum", "name": "kind", "symbols": ["A", "B"]})  # fmt: skip
    at = datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)
    value = {"n": 2**62 + 1, "price": Decimal("12345678901234.50"), "at": at, "day": date(2026, 2, 1), "raw": b"\xff",
             "maybe": None, "tags": ["x", "\N{SNOWMAN}"], "kind": "B"}  # fmt: skip

    found = decode(on_wire(server.register("kinds", kinds), avro(kinds, value)))

    assert found == {
        "n": 2**62 + 1, "price": "12345678901234.50", "at": "2026-01-31T12:00:00.123456Z", "day": "2026-02-01",
        "raw": "/w==", "maybe": None, "tags": ["x", "\N{SNOWMAN}"], "kind": "B",
    }  # fmt: skip


def test_versions_in_one_topic_are_read_by_their_own_schemas_or_as_the_reader_s(server, decode):
    first, second = record("order", article="string"), record("order", item="string", n="int")
    messages = [
        on_wire(server.register("orders", schema), avro(schema, value))
        for schema, value in [(first, {"article": "a"}), (second, {"item": "b", "n": 2})]
    ]
    reader = record("order", item="string", n="int")
    reader["fields"][0]["aliases"], reader["fields"][1]["default"] = ["article"], 1
    as_reader = Decoder(Registry(server.url, reader_schema=json.dumps(reader)))

    assert [decode(each) for each in messages] == [{"article": "a"}, {"item": "b", "n": 2}]
    assert [json.loads(as_reader(each)[0]) for each in messages] == [{"item": "a", "n": 1}, {"item": "b", "n": 2}]


def test_a_schema_is_asked_for_once_with_what_it_refers_to(server, decode):
    money = record("acme.money", cents="long")
    order = record("order", total="acme.money")
    server.register("acme.money", money)
    message = on_wire(
        server.register("orders", order, references=["acme.money"]), avro(order, {"total": {"cents": 5}}, [money])
    )

    assert [decode(message), decode(message)] == [{"total": {"cents": 5}}] * 2
    assert server.asked == ["/schemas/ids/2", "/subjects/acme.money/versions/1"]


def proto(name, *messages, dependency=(), package="acme"):
    return descriptor_pb2.FileDescriptorProto(
        name=name, package=package, syntax="proto3", message_type=messages, dependency=dependency
    )


def message_type(name, *fields, nested=()):
    """fields: name, type, and optionally the type's name, or `repeated` or `optional`."""
    found = descriptor_pb2.DescriptorProto(name=name, nested_type=nested)
    for number, (field, kind, *more) in enumerate(fields, start=1):
        label = "LABEL_REPEATED" if "repeated" in more else "LABEL_OPTIONAL"
        made = found.field.add(name=field, number=number, type=f"TYPE_{kind}", label=label)
        if more and more[0].startswith("."):
            made.type_name = more[0]
        if "optional" in more:
            found.oneof_decl.add(name=f"_{field}")
            made.proto3_optional, made.oneof_index = True, len(found.oneof_decl) - 1
    return found


def test_protobuf_is_read_by_the_message_that_its_index_names(server, decode):
    from google.protobuf import descriptor_pool, message_factory, timestamp_pb2

    line = message_type("Line", ("n", "INT64"), ("tags", "STRING", "repeated"), ("maybe", "INT32", "optional"))
    order = message_type(
        "Order", ("line", "MESSAGE", ".acme.Order.Line"), ("at", "MESSAGE", ".google.protobuf.Timestamp"),
        ("money", "MESSAGE", ".acme.Money"), nested=[line],
    )  # fmt: skip
    money = proto("money.proto", message_type("Money", ("cents", "UINT64"), ("raw", "BYTES")))
    file = proto("order.proto", message_type("Other"), order,
                 dependency=["money.proto", "google/protobuf/timestamp.proto"])  # fmt: skip
    server.register("money.proto", "..", "PROTOBUF", serialized=money.SerializeToString())
    number = server.register("orders", "..", "PROTOBUF", ["money.proto"], file.SerializeToString())
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    for each in (money, file):
        pool.Add(each)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("acme.Order"))()
    made.line.n, made.line.tags[:], made.money.cents, made.money.raw = -(2**62), ["x"], 2**63, b"\xff"
    made.at.FromDatetime(datetime(2026, 1, 31, 12, 0, 0, 123456))

    found = decode(on_wire(number, made.SerializeToString(), index=b"\x02\x02"))
    nested = decode(on_wire(number, made.line.SerializeToString(), index=b"\x04\x02\x00"))

    assert nested == {"n": -(2**62), "tags": ["x"], "maybe": None}
    assert found == {
        "line": nested,
        "at": "2026-01-31T12:00:00.123456Z",
        "money": {"cents": 2**63, "raw": "/w=="},
    }
    assert decode(on_wire(number, b"", index=b"\x00")) == {}


def test_json_schema_is_the_text_after_the_id(server, decode):
    number = server.register("orders", {"type": "object"}, "JSON")

    assert decode(on_wire(number, b'{"n": 1.10}')) == {"n": 1.1}
    assert decode(on_wire(number, b"\xff")) == f"schema {number}: not UTF-8"


def test_what_cannot_be_decoded_says_why(server, decode):
    schema = record("order", article="string")
    number = server.register("orders", schema)
    whole = avro(schema, {"article": "a"})
    thrift = server.register("orders", "..", "THRIFT")

    assert decode(b'{"article": "a"}') == "no byte 0 and schema id before the record: not written with a registry"
    assert decode(b"\0\0") == "no byte 0 and schema id before the record: not written with a registry"
    assert decode(on_wire(99, whole)) == "schema 99: the registry does not have it"
    assert decode(on_wire(number, whole[:-1])).startswith(f"schema {number}: EOFError")
    assert decode(on_wire(number, whole + b"xy")) == f"schema {number}: 2 bytes are left after the record"
    assert (
        decode(on_wire(thrift, whole)) == f"schema {thrift}: is of type 'THRIFT'; AVRO, PROTOBUF and JSON can be read"
    )
    assert Decoder(Registry(server.url))(None) is None


def test_a_registry_that_does_not_answer_is_tried_again_and_is_no_fault_of_the_message(server, decode):
    schema = record("order", article="string")
    message = on_wire(server.register("orders", schema), avro(schema, {"article": "a"}))
    server.down = True

    with pytest.raises(SourceUnavailableError, match=rf"schema registry '{server.url}': answers 503"):
        decode(message)
    server.down = False

    assert len(server.asked) == 3
    assert decode(message) == {"article": "a"}
    with pytest.raises(SourceUnavailableError, match=r"does not answer: .*refused"):
        Decoder(Registry("http://127.0.0.1:1"))(message)


def test_a_password_is_sent_and_never_shown(monkeypatch):
    monkeypatch.setattr(registry_module, "PAUSE_SECONDS", 0.0)
    schema = record("order", article="string")
    with running_registry(SECRET) as server:
        message = on_wire(server.register("orders", schema), avro(schema, {"article": "a"}))
        wrong = Registry(server.url, auth=("reader", f"{SECRET}-wrong"), headers={"X-Token": SECRET})

        with pytest.raises(SourceUnavailableError, match="answers 401") as refused:
            Decoder(wrong)(message)

        assert json.loads(Decoder(Registry(server.url, auth=("reader", SECRET)))(message)[0]) == {"article": "a"}
    assert SECRET not in f"{refused.value}{refused.value.__cause__}{wrong!r}{Decoder(wrong)!r}"


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"url": f"http://u:{SECRET}@registry:8081"}, "has a user or a password"),
        ({"url": "registry:8081"}, "give its url as"),
        ({"url": "http://registry:8081", "reader_schema": "{"}, "reader_schema is not JSON"),
    ],
)
def test_invalid_settings_are_refused_where_they_are_declared(given, fault):
    with pytest.raises(PipelineError, match=fault) as refused:
        Registry(**given)

    assert SECRET not in str(refused.value)
