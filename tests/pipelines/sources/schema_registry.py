"""A schema registry for tests: Confluent's API over HTTP, on the loopback address."""

import json
import struct
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tidegauge.pipelines.embedded.data_dir import LOOPBACK


class SchemaRegistry:
    """What the registry has. asked: the path of each request. down: whether it answers 503. secret: the password."""

    def __init__(self, secret: str = "") -> None:
        self.asked: list[str] = []
        self.down = False
        self.secret = secret
        self.url = ""
        self._schemas: list[dict[str, Any]] = []
        self._serialized: list[bytes] = []

    def register(
        self, subject: str, schema: Any, kind: str = "AVRO", references: Sequence[str] = (), serialized: bytes = b""
    ) -> int:
        """Register a schema and return its id. references: subjects whose name is that of the schema."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        needed = [{"name": name, "subject": name, "version": 1} for name in references]
        self._schemas.append({"subject": subject, "schema": text, "references": needed})
        if kind != "AVRO":
            self._schemas[-1]["schemaType"] = kind
        self._serialized.append(serialized)
        return len(self._schemas)

    def answer(self, path: str, authorization: str | None) -> tuple[int, Any]:
        self.asked.append(path)
        parts = urlsplit(path)
        words = [unquote(word) for word in parts.path.split("/")[1:]]
        if self.down:
            return 503, {"message": "down"}
        if self.secret and authorization != f"Basic {b64encode(f'reader:{self.secret}'.encode()).decode()}":
            return 401, {"message": "not you"}
        if words[:2] == ["schemas", "ids"]:
            place = int(words[2]) - 1
        else:
            place = next((at for at, each in enumerate(self._schemas) if each["subject"] == words[1]), -1)
        if not 0 <= place < len(self._schemas):
            return 404, {"error_code": 40403, "message": "Schema not found"}
        if parse_qs(parts.query).get("format") == ["serialized"]:
            return 200, self._schemas[place] | {"schema": b64encode(self._serialized[place]).decode()}
        return 200, self._schemas[place]


@contextmanager
def running_registry(secret: str = "") -> Iterator[SchemaRegistry]:
    registry = SchemaRegistry(secret)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, found = registry.answer(self.path, self.headers.get("Authorization"))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(found).encode())

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    registry.url = f"http://{LOOPBACK}:{server.server_port}"
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def on_wire(schema_id: int, record: bytes, index: bytes = b"") -> bytes:
    """Return a record as a producer with a registry writes it. index: of Protobuf's message."""
    return b"\0" + struct.pack(">I", schema_id) + index + record


def record(name: str, /, **fields: Any) -> dict[str, Any]:
    """Return an Avro schema with these fields and their types."""
    return {"type": "record", "name": name, "fields": [{"name": key, "type": kind} for key, kind in fields.items()]}


def avro(schema: Any, value: Any, known: Sequence[Any] = ()) -> bytes:
    """Return a value in Avro. known: schemas that this one refers to."""
    import fastavro

    names: dict[str, Any] = {}
    for each in known:
        fastavro.parse_schema(each, names)
    stream = BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema, names), value)
    return stream.getvalue()
