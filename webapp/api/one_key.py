"""One key by GET, for clients and caches that know it: a bulk lookup of one key, with its ETags."""

from collections.abc import Mapping
from typing import Any

import orjson
from rest_framework.exceptions import APIException

from tidegauge.state_backends import StateSpec
from tidegauge.webapp.accounts.permissions import KeyScope
from tidegauge.webapp.api.lookups import Answer, read
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
