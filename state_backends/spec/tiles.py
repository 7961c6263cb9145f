"""Tiles: a state with a time in its key keeps recent time in fine tiles and earlier time in coarser ones.

Each event is in exactly one row. The row's time is the start of the fine tile that the event fell into, or of the
coarser tile that compaction has folded that one into since. So the rows that begin before a time hold exactly the
events before it, if the time is the start of a tile of the size in use there. A window between two such times is the
fold of the rows that begin in it, whatever their sizes: a late event makes a fine row within a coarse tile, and both
count.

Which size is in use is recorded per state (`tidegauge.state.tiles_until`) before the first row is folded. These times
never go back.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from tidegauge.state_backends.errors import SpecError, TilesGoneError

WIDTHS: Mapping[str, timedelta] = {
    "second": timedelta(seconds=1),
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
}

# In `tiles_until`, beside the names of tiles: the time before which tiles are dropped.
GONE = "gone"

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Until = Mapping[str, datetime]


@dataclass(frozen=True)
class Tiles:
    """column: the key column that holds the start of a tile. keep: as declared, the finest first; see StateSpec.

    until: name of a tile to the time before which it is in use, as recorded for the state; see the module.
    """

    column: str
    keep: Mapping[str, timedelta | None]

    @property
    def finest(self) -> str:
        return next(iter(self.keep))

    @property
    def coarser(self) -> list[str]:
        """The tiles that compaction makes, the coarsest first."""
        return list(self.keep)[:0:-1]

    def in_use(self, at: datetime, until: Until) -> str:
        """Return the name of the tile that is in use at a time."""
        return next((name for name in self.coarser if name in until and at < until[name]), self.finest)

    def start(self, at: datetime, until: Until) -> datetime:
        """Return the start of the tile in use at a time."""
        return floor(at, WIDTHS[self.in_use(at, until)])

    def advanced(self, newest: datetime, until: Until) -> dict[str, datetime]:
        """Return `until` once time has come to `newest`; no time of it goes back."""
        names, last = list(self.keep), list(self.keep)[-1]
        # Tiles of a size are in use before the finer ones, which come first, have been kept for long enough.
        times = {name: (self.keep[finer], name) for finer, name in pairwise(names)}
        times[GONE] = (self.keep[last], last)
        now = newest.astimezone(UTC)  # because in other zones Python subtracts a day from local time
        most = now - datetime.min.replace(tzinfo=UTC)  # what is kept for longer is kept without limit
        reached = {
            name: floor(now - kept, WIDTHS[width]) for name, (kept, width) in times.items() if kept and kept < most
        }
        return {**until, **{name: max(at, until.get(name, at)) for name, at in reached.items()}}


def until_from(stored: Mapping[str, str]) -> dict[str, datetime]:
    """Return `tidegauge.state.tiles_until`, whose times are text, as times."""
    return {name: datetime.fromisoformat(at) for name, at in stored.items()}


def check_kept(state: str, since: datetime, until: Until) -> None:
    """Raise TilesGoneError if tiles from `since` on are not all kept."""
    if GONE in until and since < until[GONE]:
        raise TilesGoneError(state, since, until[GONE])


def seconds_kept(keep: Mapping[str, timedelta | None]) -> dict[str, float | None]:
    return {name: kept.total_seconds() if kept else None for name, kept in keep.items()}


def floor(at: datetime, width: timedelta) -> datetime:
    """Return the start, in UTC, of the tile of a width that a time is in."""
    return EPOCH + (at - EPOCH) // width * width


def check_tiles(state: str, key: Mapping[str, str], keep: Mapping[str, timedelta | None]) -> Tiles:
    """Return the tiles that a state declares. Raises SpecError, naming what is wrong."""
    column = [*key][-1] if key else ""
    if not column or key[column] != "timestamptz":
        raise SpecError(
            f"state {state!r}: tiles need the start of the tile as the last key column, a timestamptz, and the key is "
            f"{dict(key)!r}"
        )
    if not keep or not keep.keys() <= WIDTHS.keys():
        raise SpecError(f"state {state!r}: tiles {dict(keep)!r} must name one or more of {', '.join(WIDTHS)}")
    ordered = {name: keep[name] for name in WIDTHS if name in keep}
    *finer, last = ordered.values()
    if not all(finer) or (last is not None and not last):
        raise SpecError(f"state {state!r}: tiles {dict(keep)!r}: all but the coarsest need a time to be kept for")
    lengths = [timedelta(), *(kept for kept in ordered.values() if kept)]
    if sorted(set(lengths)) != lengths:
        raise SpecError(f"state {state!r}: tiles {dict(keep)!r}: each must be kept longer than the finer ones")
    return Tiles(column, ordered)
