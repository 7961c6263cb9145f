"""Reads schemas by id, over HTTP, from a schema registry as Kafka's producers use it.

The API is Confluent's, which others offer too (Karapace, Apicurio, Redpanda): `GET /schemas/ids/{id}`, and for what a
schema refers to `GET /subjects/{subject}/versions/{version}`. Each process asks for an id once, because its schema
never changes.
"""

import json
import ssl
import time
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen

from tidegauge.pipelines.errors import PipelineError, SourceUnavailableError

TIMEOUT_SECONDS = 10
TRIES, PAUSE_SECONDS = 3, 1.0

MISSING = 404


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema and those that it refers to. kind: AVRO, PROTOBUF or JSON. text: the schema; for Protobuf its descriptor
    in base 64. references: name to schema, each after those that it needs itself.
    """

    kind: str
    text: str
    references: Mapping[str, str]


class UnknownSchemaError(LookupError):
    """The registry has no schema under an id."""


@dataclass(frozen=True)
class Registry:
    """A schema registry, for `KafkaTopics(.., registry=..)`.

    url: `http://host:port` or `https://..`, without a password. auth: user and password. headers: more headers of each
    request, such as a bearer token. ca_file: CA certificates that the registry's own is checked against.
    reader_schema: an Avro schema, as JSON, that records are converted to: renamed fields by their aliases, absent ones
    by their defaults; None: they keep the schema that they were written with.
    Neither `auth` nor `headers` is ever shown. Raises PipelineError if one of these is invalid.
    """

    url: str
    auth: tuple[str, str] | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    ca_file: str | None = None
    reader_schema: str | None = None

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.username or parts.password:
            raise PipelineError("registry: the url has a user or a password; give them as auth=(user, password)")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise PipelineError(f"registry {self.url!r}: give its url as 'http://host:port'")
        if self.reader_schema is not None:
            try:
                json.loads(self.reader_schema)
            except ValueError as error:
                raise PipelineError(f"registry: reader_schema is not JSON: {error}") from None

    def schema(self, number: int) -> RegisteredSchema:
        """Return the schema of an id; the registry is asked for it once.

        Raises UnknownSchemaError, and SourceUnavailableError if the registry does not answer properly.
        """
        known = _KNOWN.get((self.url, number))
        if known is None:
            known = _KNOWN[self.url, number] = self._fetched(number)
        return known

    def _fetched(self, number: int) -> RegisteredSchema:
        place = f"/schemas/ids/{number}"
        found = self._get(place)
        kind = found.get("schemaType", "AVRO")
        if kind == "PROTOBUF":
            found = self._get(f"{place}?format=serialized") | {"references": found.get("references", [])}
        references: dict[str, str] = {}
        self._add_references(found, kind, references)
        return RegisteredSchema(kind, found["schema"], references)

    def _add_references(self, schema: Mapping[str, Any], kind: str, found: dict[str, str]) -> None:
        for each in schema.get("references") or ():
            if each["name"] not in found:
                subject = quote(each["subject"], safe="")
                referred = self._get(f"/subjects/{subject}/versions/{each['version']}")
                self._add_references(referred, kind, found)
                if kind == "PROTOBUF":
                    referred = self._get(f"/subjects/{subject}/versions/{each['version']}?format=serialized")
                found[each["name"]] = referred["schema"]

    def _get(self, place: str) -> dict[str, Any]:
        for attempt in range(TRIES):
            try:
                return self._asked(place)
            except HTTPError as error:
                if error.code == MISSING:
                    raise UnknownSchemaError(place) from None
                reason = f"answers {error.code} {error.reason}"
            except (URLError, HTTPException, OSError, ValueError) as error:
                reason = f"does not answer: {getattr(error, 'reason', None) or error}"
            if attempt < TRIES - 1:
                time.sleep(PAUSE_SECONDS)
        # Without the cause, because it may quote the request's headers.
        raise SourceUnavailableError(
            f"schema registry {self.url!r}: {reason}; check that it runs and accepts our credentials"
        ) from None

    def _asked(self, place: str) -> dict[str, Any]:
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json", **self.headers}
        if self.auth is not None:
            headers["Authorization"] = f"Basic {b64encode(':'.join(self.auth).encode()).decode()}"
        secure = ssl.create_default_context(cafile=self.ca_file) if self.url.startswith("https:") else None
        request = Request(self.url.rstrip("/") + place, headers=headers)  # noqa: S310  http or https, checked above
        with urlopen(request, timeout=TIMEOUT_SECONDS, context=secure) as answer:  # noqa: S310
            found = json.load(answer)
        if not isinstance(found, dict) or "schema" not in found:
            raise ValueError("the answer has no schema")
        return found


_KNOWN: dict[tuple[str, int], RegisteredSchema] = {}
