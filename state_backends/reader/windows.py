"""Windows: keys of a state with tiles, folded over trailing windows of event time, such as the last hour and 24 hours.

A window ends at a time and goes back from there. Both ends are moved back to the start of the tile that is in use
there, so a window of 24 hours may cover a part of an hour more. The answer says which interval it covers, and is exact
for it: every event in it counts once, and no other.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from tidegauge.state_backends.errors import RangeTooLargeError, SpecError
from tidegauge.state_backends.reader.bounds import check_measures
from tidegauge.state_backends.reader.groups import Parts, fold_parts, fold_rows
from tidegauge.state_backends.reader.scanned import json_form
from tidegauge.state_backends.spec.row import Key
from tidegauge.state_backends.spec.state_spec import StateSpec
from tidegauge.state_backends.spec.tiles import Tiles, Until, check_kept

if TYPE_CHECKING:
    from tidegauge.state_backends.reader.reader import Snapshot

MOST_WINDOWS = 20
LONGEST = timedelta(days=36_600)


class Covered(NamedTuple):
    """One window of an answer. since: inclusive; until: exclusive; granularity: the tile in use at `since`."""

    length: timedelta
    since: datetime
    until: datetime
    granularity: str


class WindowsQuery(NamedTuple):
    """keys: checked, of `StateSpec.untiled`. lengths: of the windows. measures: to answer. to: None means now."""

    tiles: Tiles
    keys: Sequence[Key]
    lengths: Sequence[timedelta]
    measures: Sequence[str]
    to: datetime | None

    @classmethod
    def checked(
        cls,
        spec: StateSpec,
        keys: Sequence[Any],
        lengths: Sequence[timedelta],
        measures: Sequence[str] | None,
        to: datetime | None,
    ) -> Self:
        """Raises SpecError for a state without tiles and for windows that no answer can have, KeyShapeError."""
        tiles = check_tiled(spec)
        if not 1 <= len(lengths) <= MOST_WINDOWS:
            raise SpecError(f"state {spec.name!r}: {len(lengths)} windows; ask for 1 to {MOST_WINDOWS}")
        for length in lengths:
            if not timedelta(seconds=1) <= length <= LONGEST or length.microseconds:
                raise SpecError(
                    f"state {spec.name!r}: a window of {length} is not a whole number of seconds from 1 to "
                    f"{LONGEST.days} days"
                )
        if to is not None and to.tzinfo is None:
            raise SpecError(f"state {spec.name!r}: windows that end at {to} need its time zone")
        asked = list(dict.fromkeys(check_measures(spec, measures)))
        return cls(tiles, spec.untiled.check_keys(keys), lengths, asked, to)

    def covered(self, spec: StateSpec, starts: Sequence[datetime], until: datetime, in_use: Until) -> list[Covered]:
        """Return the windows. starts: of each. in_use: as recorded for the state. Raises TilesGoneError."""
        found = [
            Covered(length, start, until, self.tiles.in_use(start, in_use))
            for length, start in zip(self.lengths, starts, strict=True)
        ]
        for window in found:
            check_kept(spec.name, window.since, in_use)
        return found

    def results(self, spec: StateSpec, covered: Sequence[Covered], rows: Iterable[tuple[int, datetime, Any]]) -> bytes:
        """Return one result per key as a JSON array. rows: the number of the key from 1, the tile, stored columns."""
        # Every window ends at the same time, so each is the next shorter one and the tiles before that.
        starts = sorted({window.since for window in covered})
        shares = fold_rows(spec, self.measures, _shared_out(starts, rows))
        results = []
        for number, key in enumerate(self.keys, 1):
            values: dict[datetime, dict[str, Any]] = {}
            total: Parts | None = None
            for place, start in reversed(list(enumerate(starts))):
                if (number, place) in shares:
                    _, share = shares[number, place]
                    total = share if total is None else fold_parts(spec, [total, share])
                values[start] = self._finished(spec, total)
            results.append({"key": key, "values": [values[window.since] for window in covered]})
        return json_form(results).encode()

    def _finished(self, spec: StateSpec, total: Parts | None) -> dict[str, Any]:
        """Return the value of each measure; without tiles it is that of an empty state."""
        found = {measure: spec.measures[measure] for measure in self.measures}
        return {
            measure: aggregator.finish(dict.fromkeys(aggregator.columns) if total is None else total[measure])
            for measure, aggregator in found.items()
        }


def _shared_out(
    starts: Sequence[datetime], rows: Iterable[tuple[int, datetime, Mapping[str, Any]]]
) -> Iterator[tuple[tuple[int, int], Mapping[str, Any]]]:
    """Yield each row with the number of its key and the place of the start of the shortest window that it is in."""
    for number, tile, stored in rows:
        yield (number, bisect_right(starts, tile) - 1), stored


class Windows(NamedTuple):
    """snapshot: `[{"key": [..], "values": [{measure: ..}, ..]}, ..]`, values in the order of `covered`."""

    snapshot: "Snapshot"
    covered: Sequence[Covered]


def check_tiled(spec: StateSpec) -> Tiles:
    """Return the tiles of a state. Raises SpecError if it has none."""
    if spec.tiling is None:
        raise SpecError(
            f"state {spec.name!r}: has no tiles, so it answers no windows; declare it with tiles={{'minute': .., ..}}, "
            "see docs/time.md"
        )
    return spec.tiling


def too_many_tiles(spec: StateSpec, most: int) -> RangeTooLargeError:
    return RangeTooLargeError(
        f"state {spec.name!r}: these windows read and fold over {most:,} tiles; ask for fewer keys, shorter windows, "
        "or fewer measures if some of them are sketches"
    )
