"""One key at an address of its own, for clients and caches that know GET: a bulk lookup of one key, with its ETags.

The parts of the key are in the path, percent-encoded. The server decodes the path before it is split, so a part with a
slash cannot be told from two parts where there are several key columns; such a key, and one with an empty part, which
proxies remove, is given as JSON instead: `/keys?key=["a/b", "c"]`.
"""

from collections.abc import Mapping
from typing import Any

import orjson
from rest_framework.exceptions import APIException

from tidegauge.state_backends import StateSpec
from tidegauge.state_backends.errors import KeyShapeError
from tidegauge.state_backends.spec.types import KEY_TYPES
from tidegauge.webapp.accounts.permissions import KeyScope
from tidegauge.webapp.api.lookups import Answer, read
from tidegauge.webapp.api.rendering import parse_json
from tidegauge.webapp.catalog import readers


class KeyNotFoundError(APIException):
    """The state has no such key at this batch. members: the batch, and whether the key is missing or expired."""

    status_code = 404

    def __init__(self, answer: Answer, result: Mapping[str, Any]) -> None:
        batch = answer.batch
        super().__init__(
            f"state {answer.state!r}: key {orjson.dumps(result['key']).decode()} is {result['status']} as of batch "
            f"{batch['txid']}"
        )
        self.members = {"key_status": result["status"], "txid": batch["txid"], "epoch": batch["epoch"]}


def key_in_path(spec: StateSpec, path: str) -> list[Any]:
    """Return the key whose parts are in a path, typed as JSON has them. Raises KeyShapeError."""
    columns = list(spec.key)
    # With one column a slash can only be the key's own.
    texts = [path] if len(columns) == 1 else path.split("/")
    if len(texts) != len(columns):
        raise KeyShapeError(
            f"key: expected {len(columns)} parts ({', '.join(columns)}) in the path, got {len(texts)}; a key with a "
            f'slash or an empty part is given as JSON: /api/v1/states/{spec.name}/keys?key=["a/b", ..]'
        )
    return [_part(text, sql_type) for text, sql_type in zip(texts, spec.key.values(), strict=True)]


def document_of(answer: Answer) -> bytes:
    """Return the answer to a lookup of one key. Raises KeyNotFoundError if it is missing or expired."""
    results = answer.snapshot.results
    (result,) = orjson.loads(results)
    if result["status"] != "found":
        raise KeyNotFoundError(answer, result)
    document = answer.batch | answer.document
    del document["results"]
    # The result as the database wrote it, with all digits, and without the brackets of the list.
    return orjson.dumps(document)[:-1] + b"," + results.strip()[2:-1].lstrip()


def spec_of(name: str, scope: KeyScope) -> StateSpec:
    """Raises UnknownStateError, OutsideError."""
    scope.check_state(name)
    spec = read(lambda conn: readers.reader(conn, name).spec)
    scope.prefix_of(spec)  # here, since the refusal of a key names the key columns
    return spec


def _part(text: str, sql_type: str) -> Any:
    if KEY_TYPES[sql_type].is_text_in_json:
        return text
    try:
        return parse_json(text)
    except orjson.JSONDecodeError:
        return text
