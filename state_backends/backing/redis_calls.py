"""Calls of a state's scripts, several per round trip, as many as keep memory small."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from state_backends.backing.redis_scripts import script_text
from state_backends.spec import StateSpec

# The library loads without redis-py; whoever has a client has loaded it.
if TYPE_CHECKING:
    import redis
    from redis.cluster import RedisCluster
    from redis.commands.core import Script

Client: TypeAlias = "redis.Redis | RedisCluster"

# What a call is about, the keys it touches, its arguments.
T = TypeVar("T")
Call = tuple[T, Sequence[bytes], Sequence[bytes]]

# Bounds what is on its way, and so in memory, beside the caller's own lists.
CALLS_PER_ROUND_TRIP = 4


class ScriptCalls:
    """The scripts of one state on one client. Errors of Redis pass through, without the arguments of the call."""

    def __init__(self, client: Client, spec: StateSpec) -> None:
        from redis.cluster import RedisCluster

        self._client = client
        self._spec = spec
        self._is_cluster = isinstance(client, RedisCluster)
        self._scripts: dict[str, Script] = {}

    def run(self, name: str, calls: Iterable[Call[T]]) -> Iterator[tuple[T, Any]]:
        """Call a script again and again; yield what each call is about, and its reply. Stops at the first error."""
        script = self._script(name)
        if self._is_cluster:
            # A cluster's pipelines take no scripts.
            yield from ((about, script(keys, arguments)) for about, keys, arguments in calls)
            return
        rest = iter(calls)
        while trip := list(islice(rest, CALLS_PER_ROUND_TRIP)):
            yield from zip((about for about, _, _ in trip), self._pipelined(script, trip), strict=True)

    def _pipelined(self, script: "Script", trip: Sequence[Call[T]]) -> Iterator[Any]:
        with self._client.pipeline(transaction=False) as pipe:
            for _, keys, arguments in trip:
                script(keys, arguments, client=pipe)
            # An error raised by the pipeline itself would quote the command, and with it a row.
            for reply in pipe.execute(raise_on_error=False):
                if isinstance(reply, Exception):
                    raise reply
                yield reply

    def _script(self, name: str) -> "Script":
        if name not in self._scripts:
            self._scripts[name] = self._client.register_script(script_text(self._spec, name))
        return self._scripts[name]
