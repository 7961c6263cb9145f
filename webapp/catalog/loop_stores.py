"""Stores outside of the database, as the event loop reads them: clients take turns, and no call may take long."""

import asyncio
from collections import defaultdict
from typing import Any

from tidegauge.state_backends import BACKENDS, BackendUnavailable, StateSpec
from tidegauge.state_backends.protocols import LoopRows
from tidegauge.state_backends.reader.reader import ShownRows
from tidegauge.webapp.catalog.loop_turns import STUCK_SECONDS, LoopTurns, NoConnectionError
from tidegauge.webapp.core.pools import loop_connections


class LoopStores:
    """For one event loop."""

    def __init__(self) -> None:
        self._turns: dict[str, LoopTurns] = defaultdict(lambda: LoopTurns(loop_connections()))
        self._rows: dict[str, tuple[StateSpec, LoopRows | None]] = {}

    async def shown_rows(self, client: str, spec: StateSpec, step: ShownRows) -> Any:
        """Return the answer of a state's rows to a step of a read. client: who takes a turn.

        Raises NoConnectionError if the backend has no rows for event loops, and if the store does not answer within
        STUCK_SECONDS; PoolFullError; and what `multi_get_committed` raises.
        """
        rows = self._rows_of(spec)
        if rows is None:
            raise NoConnectionError
        turns = self._turns[spec.backend]
        await turns.begin(client)
        try:
            async with asyncio.timeout(STUCK_SECONDS):
                return await step.of(rows)
        except (BackendUnavailable, TimeoutError) as error:
            turns.pause()
            raise NoConnectionError from error
        finally:
            turns.end(client)

    async def close(self) -> None:
        for _, rows in self._rows.values():
            if rows is not None:
                await rows.close()

    def _rows_of(self, spec: StateSpec) -> LoopRows | None:
        # Made once, because that composes a script. A state whose declaration has changed has another spec object.
        held = self._rows.get(spec.name)
        if held is None or held[0] is not spec:
            held = self._rows[spec.name] = spec, BACKENDS[spec.backend].loop_rows(spec)
        return held[1]
