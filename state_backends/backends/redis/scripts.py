"""The scripts that Redis runs for one state: their text, how values are packed for them, and how they are called.

A script is a header with the columns of the state, followed by files of lua/. It names every key that it touches in
KEYS, because Redis Cluster requires that. redis-py sends and parses each value on its own, which is slow, so many
values are sent as two strings: the lengths, four bytes each and -1 for a null, and the values, end to end. packing.lua
does the same in Lua.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from tidegauge.state_backends.backends.redis.keys import KeyNames
from tidegauge.state_backends.extras import OptionalModule
from tidegauge.state_backends.spec.state_spec import StateSpec, stored_column
from tidegauge.state_backends.spec.table import StateTable, previous

# For types only, because the library loads without redis-py; a caller that has a client has loaded it.
if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
    import redis
    from redis.cluster import RedisCluster
    from redis.commands.core import Script
else:
    pa, pc = OptionalModule("pyarrow"), OptionalModule("pyarrow.compute")

Client: TypeAlias = "redis.Redis | RedisCluster"

# What a call is about, the keys it touches, its arguments.
T = TypeVar("T")
Call = tuple[T, Sequence[bytes], Sequence[bytes]]

NULL = -1

# Few, so that calls in flight take little memory in addition to the caller's own lists. Calls for a spread state may
# have few keys each, so their keys are counted instead.
CALLS_PER_ROUND_TRIP, KEYS_PER_ROUND_TRIP = 4, 4_000

# The files that precede the script of that name.
NEEDS = {
    "admit": ["common"],
    "check": ["common"],
    "committed": ["common", "packing"],
    "get": ["packing"],
    "gone": ["common"],
    "merge": ["common", "packing", "arithmetic"],
    "publish": ["common"],
    "put": ["common", "packing"],
    "rebuild": ["common"],
    "remove": ["common"],
    "revert": ["common"],
    "status": [],
    "timers": ["common"],
    "trim": ["common"],
}


def executed(pipe: Any) -> list[Any]:
    """Return the replies of a pipeline. Raises the first error among them.

    Raised here, because an error raised by the pipeline itself would quote the command, and with it a row.
    """
    replies: list[Any] = pipe.execute(raise_on_error=False)
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    return replies


def on_each_bucket(client: Any, buckets: Sequence[KeyNames], call: Callable[[Any, KeyNames], Any]) -> list[Any]:
    """Return the replies to one command per bucket, in one round trip to each node.

    call: sends the command, by a client or a pipeline, about the keys of a bucket.
    """
    if len(buckets) == 1:
        return [call(client, buckets[0])]
    pipe = client.pipeline(transaction=False)
    for names in buckets:
        call(pipe, names)
    return executed(pipe)


def pack(values: Sequence[bytes | None]) -> tuple[bytes, bytes]:
    lengths = [NULL if value is None else len(value) for value in values]
    return struct.pack(f"<{len(lengths)}i", *lengths), b"".join(filter(None, values))


def pack_array(values: "pa.Array") -> tuple[bytes, bytes]:
    """Return the same for an Arrow array of binary, without a Python object per value."""
    lengths = pc.fill_null(pc.binary_length(values), NULL).cast(pa.int32())
    one_list = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), pc.fill_null(values, b""))
    return _int32_bytes(lengths), pc.binary_join(one_list, b"")[0].as_py()


def unpack(lengths: bytes, text: bytes) -> Iterator[bytes | None]:
    start = 0
    for (length,) in struct.iter_unpack("<i", lengths):
        if length == NULL:
            yield None
        else:
            yield text[start : start + length]
            start += length


def by_row(width: int, values: Iterator[bytes | None]) -> Iterator[tuple[bytes | None, ...]]:
    """Yield the values that come row after row as rows of `width`."""
    return zip(*[values] * width, strict=True)


def _int32_bytes(numbers: "pa.Int32Array") -> bytes:
    start = numbers.offset * 4
    return memoryview(numbers.buffers()[1])[start : start + len(numbers) * 4].tobytes()


def script_text(spec: StateSpec, name: str) -> str:
    """Return the text of one script for one state."""
    parts = [_header(spec), *map(file_text, NEEDS[name])]
    if name == "merge":
        parts.append(_fold(spec))
    return "\n".join([*parts, file_text(name)])


def fields(spec: StateSpec) -> list[str]:
    """Return the fields of a row's hash: a version's, its txid, and the same as `prev_*`, each if the kind keeps it."""
    table = StateTable(spec)
    version = [*table.version, *(["txid"] if table.keeps_txid else [])]
    return [*version, *(previous(version) if table.keeps_previous else [])]


def _header(spec: StateSpec) -> str:
    table = StateTable(spec)
    lists = {"VALUES": table.values, "VERSION": table.version, "FIELDS": fields(spec)}
    place = list(table.values).index(spec.row_count) + 1 if spec.row_count else 0
    constants = [f'local KIND = "{spec.kind}"', f"local ROW_COUNT = {place}"]
    constants.append(f"local SPREAD = {'true' if spec.partitions > 1 else 'false'}")
    return "\n".join([*constants, *(f"local {name} = {_list(of)}" for name, of in lists.items())])


def _list(names: Iterable[str]) -> str:
    return "{" + ", ".join(f'"{name}"' for name in names) + "}"


def _fold(spec: StateSpec) -> str:
    places = {name: place for place, name in enumerate(spec.value_columns, start=1)}
    folded = [
        aggregator.fold_lua[suffix].format(**_places(measure, aggregator.columns, places))
        for measure, aggregator in spec.measures.items()
        for suffix in aggregator.columns
    ]
    return f"local function fold(stored, columns, i)\n  return {{{', '.join(folded)}}}\nend"


def _places(measure: str, suffixes: Iterable[str], places: dict[str, int]) -> dict[str, str]:
    names = {}
    for suffix in suffixes:
        place = places[stored_column(measure, suffix)]
        tail = f"_{suffix}" if suffix else ""
        names[f"stored{tail}"] = f"(stored[{place}] or nil)"
        names[f"partial{tail}"] = f"columns[{place}][i]"
    return names


@cache
def file_text(name: str) -> str:
    return (Path(__file__).parent / "lua" / f"{name}.lua").read_text(encoding="utf-8")


class ScriptCalls:
    """The scripts of one state on one client. Errors of Redis pass through, without the arguments of the call."""

    def __init__(self, client: Client, spec: StateSpec) -> None:
        from redis.cluster import RedisCluster

        self._client: Any = client
        self._spec = spec
        self._is_cluster = isinstance(client, RedisCluster)
        self._scripts: dict[str, Script] = {}

    def run(self, name: str, calls: Iterable[Call[T]]) -> Iterator[tuple[T, Any]]:
        """Call a script several times; yield what each call is about, and its reply. Stops at the first error."""
        script, rest = self._script(name), iter(calls)
        send = self._sent_to_nodes if self._is_cluster else self._pipelined
        while trip := self._next_trip(rest):
            yield from zip((about for about, _, _ in trip), send(script, trip), strict=True)

    def call(self, name: str, keys: Sequence[bytes], arguments: Sequence[bytes]) -> Any:
        """Call a script once and return its reply."""
        ((_, reply),) = self.run(name, [(None, keys, arguments)])
        return reply

    def _pipelined(self, script: "Script", trip: Sequence[Call[T]]) -> Iterator[Any]:
        with self._client.pipeline(transaction=False) as pipe:
            for _, keys, arguments in trip:
                script(keys, arguments, client=pipe)
            yield from executed(pipe)

    def _sent_to_nodes(self, script: "Script", trip: Sequence[Call[T]]) -> Iterator[Any]:
        """Yield the replies to calls that are sent to all nodes before any reply is read."""
        from redis.exceptions import NoScriptError

        # redis-py repeats a call that a node has not run because its slot is elsewhere, as it does outside a pipeline.
        with self._client.pipeline() as pipe:
            for _, keys, arguments in trip:
                # The node is given, because otherwise redis-py computes the slot of every key. The command is spelled
                # out, because its pipelines have no method for it, as a node may not have the script.
                node = self._client.get_node_from_key(keys[0])
                pipe.execute_command("EVALSHA", script.sha, len(keys), *keys, *arguments, target_nodes=node)
            replies = pipe.execute(raise_on_error=False)
        for (_, keys, arguments), reply in zip(trip, replies, strict=True):
            answer = script(keys, arguments) if isinstance(reply, NoScriptError) else reply
            if isinstance(answer, Exception):
                raise answer
            yield answer

    def _next_trip(self, calls: Iterator[Call[T]]) -> list[Call[T]]:
        if self._spec.partitions == 1:
            return list(islice(calls, CALLS_PER_ROUND_TRIP))
        trip, keys = list[Call[T]](), 0
        while keys < KEYS_PER_ROUND_TRIP and (call := next(calls, None)) is not None:
            trip.append(call)
            keys += len(call[1])
        return trip

    def _script(self, name: str) -> "Script":
        if name not in self._scripts:
            self._scripts[name] = self._client.register_script(script_text(self._spec, name))
        return self._scripts[name]
