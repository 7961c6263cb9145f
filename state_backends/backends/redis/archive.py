"""A state in Redis as records for a backup, by DUMP and RESTORE, which one server, a Sentinel's and a cluster have."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import redis

from tidegauge.state_backends.backends.redis.client import unavailable
from tidegauge.state_backends.backends.redis.keys import Buckets
from tidegauge.state_backends.backends.redis.pages import recorded
from tidegauge.state_backends.backends.redis.scripts import Client
from tidegauge.state_backends.backends.redis.upkeep import RedisUpkeep
from tidegauge.state_backends.errors import BackendSetupError
from tidegauge.state_backends.spec.state_spec import StateSpec

# Per round trip. Few, because the server does nothing else meanwhile.
PAGE_KEYS = 1_000
SHORT = 4  # bytes of a length
VERSION = "DUMP payload version"


class RedisArchive:
    """See StateArchive. A record is the length of a key, the key, and its value as DUMP gives it; no key expires."""

    def __init__(self, client: Client) -> None:
        self._client: Any = client

    def save(self, spec: StateSpec) -> Iterator[bytes]:
        with unavailable():
            for page in RedisUpkeep(self._client, spec).pages():
                yield from self._dumped(page.rows)
            for names in recorded(self._client, Buckets(spec).names).values():
                yield from self._dumped(names)

    def load(self, spec: StateSpec, records: Iterable[bytes]) -> None:
        waiting = iter(records)
        with unavailable():
            while page := list(islice(waiting, PAGE_KEYS)):
                pipe = self._client.pipeline(transaction=False)
                for record in page:
                    end = SHORT + int.from_bytes(record[:SHORT], "big")
                    pipe.restore(record[SHORT:end], 0, record[end:], replace=True)
                try:
                    pipe.execute()
                except redis.ResponseError as error:
                    if VERSION not in str(error):
                        raise
                    raise BackendSetupError(
                        f"state {spec.name!r}: this Redis is older than the one that was backed up, and cannot read "
                        "its values; restore into that version or a later one"
                    ) from error

    def _dumped(self, keys: Sequence[bytes]) -> Iterator[bytes]:
        pipe = self._client.pipeline(transaction=False)
        for key in keys:
            pipe.dump(key)
        for key, value in zip(keys, pipe.execute(), strict=True):
            if value is not None:
                yield len(key).to_bytes(SHORT, "big") + key + value
