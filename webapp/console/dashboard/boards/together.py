"""Reads the tiles of a board together: those of one pipeline at one batch, and all of them within a limit of time."""

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import psycopg

from tidegauge.state_backends.errors import MovedOnError, OutOfReachError, UnknownStateError
from tidegauge.state_backends.reader.multi_state import until_one_batch
from tidegauge.state_backends.reader.reader import CommittedBatch
from tidegauge.webapp.accounts.permissions import OutsideError
from tidegauge.webapp.catalog import readers
from tidegauge.webapp.catalog.pipeline_status import PipelineStatus
from tidegauge.webapp.catalog.visible import Visible
from tidegauge.webapp.console.boards.models import Tile
from tidegauge.webapp.console.dashboard.boards.tiles import Content, names_a_batch, read_tile
from tidegauge.webapp.console.dashboard.entries import REFUSED, UNAVAILABLE
from tidegauge.webapp.console.dashboard.explorer.moment import UnknownMomentError
from tidegauge.webapp.console.dashboard.explorer.saved import summary

# A tile that has not begun by then is not read, so that a board holds a thread for seconds and not for minutes.
MOST_SECONDS = 8.0

UNSEEN = "you may not see this view"
TOO_SLOW = "not read, because the tiles before it took too long; open the view, or narrow what it asks"


@dataclass(frozen=True)
class Shown:
    """A tile and what it shows. content: None if there is none; `refusal` then says why. parts: its question in words.

    is_unread: the values could not be read just now, so the next refresh tries again.
    """

    tile: Tile
    content: Content | None = None
    refusal: str = ""
    parts: Sequence[str] = ()
    is_unread: bool = False

    @property
    def is_seen(self) -> bool:
        return self.refusal != UNSEEN

    @property
    def batch(self) -> CommittedBatch:
        return self.content.batch if self.content else CommittedBatch(0, 0, None, "")


def pipelines_by_state(pipelines: Iterable[PipelineStatus]) -> dict[str, PipelineStatus]:
    return {state: pipeline for pipeline in pipelines for state in pipeline.states}


def read_together(
    tiles: Sequence[Tile], seen: frozenset[str], visible: Visible, feeding: Mapping[str, PipelineStatus]
) -> list[Shown]:
    """Return what each tile shows, in their order. seen: ids of the views that may be read. feeding: as above."""
    ends = time.monotonic() + MOST_SECONDS
    alone: list[Tile] = []
    by_pipeline: dict[str, list[Tile]] = defaultdict(list)
    for tile in tiles:
        pipeline = feeding.get(tile.view.state)
        if tile.view_id not in seen or pipeline is None or names_a_batch(tile):
            alone.append(tile)
        else:
            by_pipeline[pipeline.name].append(tile)
    found = [_read(tile, seen, visible, feeding, None, ends) for tile in alone]
    for group in by_pipeline.values():
        found += _at_one_batch(group, seen, visible, feeding, ends)
    by_tile = {shown.tile.pk: shown for shown in found}
    return [by_tile[tile.pk] for tile in tiles]


def _at_one_batch(
    tiles: Sequence[Tile],
    seen: frozenset[str],
    visible: Visible,
    feeding: Mapping[str, PipelineStatus],
    ends: float,
) -> list[Shown]:
    """Return what tiles of one pipeline show: at one batch, unless it commits faster than they are read."""
    answers: dict[int, Shown] = {}

    def ask(txid: int | None) -> list[Shown]:
        if txid is not None and time.monotonic() >= ends:
            raise MovedOnError("there is no time to read the tiles again")
        answers.update((tile.pk, _read(tile, seen, visible, feeding, txid, ends)) for tile in tiles)
        # Those without an answer are of no batch.
        return [shown for shown in answers.values() if shown.content]

    with suppress(MovedOnError):  # each tile says which batch it shows
        until_one_batch(ask, lambda shown: shown.batch, {tile.view.state for tile in tiles})
    return [answers[tile.pk] for tile in tiles]


def _read(
    tile: Tile,
    seen: frozenset[str],
    visible: Visible,
    feeding: Mapping[str, PipelineStatus],
    at_txid: int | None,
    ends: float,
) -> Shown:
    """Raises OutOfReachError if `at_txid`, which no view names, is out of reach by now."""
    if tile.view_id not in seen:
        return Shown(tile, refusal=UNSEEN)
    parts = summary(tile.view.question)
    pipeline = feeding.get(tile.view.state)
    if pipeline is None:
        return Shown(tile, refusal=f"the state {tile.view.state} no longer exists", parts=parts)
    if time.monotonic() >= ends:
        return Shown(tile, refusal=TOO_SLOW, parts=parts, is_unread=True)
    try:
        reader = readers.reader(readers.connection(), tile.view.state)
        return Shown(tile, read_tile(tile, reader, visible.scope, pipeline, at_txid), parts=parts)
    except OutOfReachError as error:
        if at_txid is not None:
            raise
        return Shown(tile, refusal=str(error), parts=parts)
    except (*REFUSED, OutsideError, UnknownMomentError, UnknownStateError) as error:
        return Shown(tile, refusal=str(error), parts=parts)
    except UNAVAILABLE:
        return Shown(tile, refusal="the values are unavailable at present", parts=parts, is_unread=True)
    except psycopg.errors.QueryCanceled:
        return Shown(tile, refusal="its query took too long; narrow what the view asks", parts=parts, is_unread=True)
