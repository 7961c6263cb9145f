"""Groups: the entries of a range folded by some of their key columns, each measure by its aggregator's own fold.

Stored values are folded, so a mean is the mean of all events, and a distinct count counts the union. Python folds them,
because SQL can fold neither a sketch nor a custom measure.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache, reduce
from typing import Any, NamedTuple, Self, cast

from tidegauge.state_backends.errors import RangeTooLargeError, SpecError
from tidegauge.state_backends.protocols import Aggregator
from tidegauge.state_backends.reader.bounds import check_folds, check_measures, check_order
from tidegauge.state_backends.reader.filters import rank
from tidegauge.state_backends.reader.scanned import json_form
from tidegauge.state_backends.spec.row import Key
from tidegauge.state_backends.spec.state_spec import StateSpec, stored_column


class Grouping(NamedTuple):
    """by: key columns, in key order. measures: the ones that a group shows. order_by: one of these; None: by key."""

    by: tuple[str, ...]
    measures: tuple[str, ...]
    order_by: str | None
    descending: bool
    limit: int

    @classmethod
    def checked(
        cls,
        spec: StateSpec,
        by: Sequence[str],
        measures: Sequence[str] | None,
        order_by: str | None,
        descending: bool,
        limit: int,
    ) -> Self:
        """Raises SpecError for a name that is neither key column nor measure, and for a state that cannot be folded."""
        check_folds(spec)
        for column in by:
            if column not in spec.key:
                known = ", ".join(spec.key) or "none"
                raise SpecError(f"state {spec.name!r}: no key column {column!r} to group by; there are {known}")
        if not by:
            raise SpecError(f"state {spec.name!r}: name one or more key columns to group by: {', '.join(spec.key)}")
        check_order(spec, order_by)
        if order_by in spec.key and order_by not in by:
            raise SpecError(f"state {spec.name!r}: groups by {', '.join(by)} cannot be ordered by {order_by!r}")
        asked = dict.fromkeys(check_measures(spec, measures))
        if order_by is not None and order_by not in spec.key:
            asked[order_by] = None
        chosen = tuple(column for column in spec.key if column in by)
        return cls(chosen, tuple(asked), order_by, descending, limit)

    def results(self, spec: StateSpec, rows: Iterable[tuple[Key, Mapping[str, Any]]]) -> tuple[bytes, bool]:
        """Return the first groups as a JSON array, and whether these are all groups.

        rows: per entry the key parts to group by, and the stored columns by name.
        """
        groups = fold_rows(spec, self.measures, rows)
        found = [
            (key, keys, {measure: spec.measures[measure].finish(parts[measure]) for measure in self.measures})
            for key, (keys, parts) in groups.items()
        ]
        shown = self._ordered(found)[: self.limit]
        answered = [{"key": key, "keys": keys, "value": value} for key, keys, value in shown]
        return json_form(answered).encode(), len(found) <= self.limit

    def _ordered(self, found: list[tuple[Key, int, dict[str, Any]]]) -> list[tuple[Key, int, dict[str, Any]]]:
        by_key = sorted(found, key=lambda group: [rank(part) for part in group[0]])
        measure = self.order_by
        if measure is None:
            return by_key
        if measure in self.by:
            place = self.by.index(measure)
            return sorted(by_key, key=lambda group: rank(group[0][place]), reverse=self.descending)
        # Nulls come last in either direction, and ties keep key order, because the sort is stable.
        some = [group for group in by_key if group[2][measure] is not None]
        some.sort(key=lambda group: rank(group[2][measure]), reverse=self.descending)
        return [*some, *(group for group in by_key if group[2][measure] is None)]


Parts = Mapping[str, Mapping[str, Any]]


def fold_rows(
    spec: StateSpec, measures: Sequence[str], rows: Iterable[tuple[Any, Mapping[str, Any]]]
) -> dict[Any, tuple[int, Parts]]:
    """Return, by group, how many rows it has, and the stored parts of each measure, suffix to value, folded.

    rows: per entry its group and the stored columns by name.
    """
    groups: dict[Any, list[Mapping[str, Any]]] = {}
    for key, stored in rows:
        groups.setdefault(key, []).append(stored)
    columns = {
        measure: [(suffix, stored_column(measure, suffix)) for suffix in spec.measures[measure].columns]
        for measure in measures
    }

    def folded(group: list[Mapping[str, Any]]) -> Parts:
        return {
            measure: fold_all(
                spec.measures[measure], [{suffix: row.get(name) for suffix, name in suffixes} for row in group]
            )
            for measure, suffixes in columns.items()
        }

    return {key: (len(group), folded(group)) for key, group in groups.items()}


def fold_parts(spec: StateSpec, group: Sequence[Parts]) -> Parts:
    """Return the stored parts of one or more rows, folded."""
    return {measure: fold_all(spec.measures[measure], [parts[measure] for parts in group]) for measure in group[0]}


def fold_all(aggregator: Aggregator, values: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return one or more stored values, folded."""
    at_once = getattr(aggregator, "fold_all", None) if _folds_at_once(type(aggregator)) else None
    if len(values) == 1 or at_once is None:
        return reduce(aggregator.fold, values)
    return cast(Mapping[str, Any], at_once(values))


@cache
def _folds_at_once(kind: type[Aggregator]) -> bool:
    """Return whether `fold_all` folds as `fold` does: not if a subclass has a `fold` of its own, and no `fold_all`."""
    owner = next(each for each in kind.__mro__ if {"fold", "fold_all"} & vars(each).keys())
    return "fold_all" in vars(owner)


def too_many_to_group(spec: StateSpec, most: int) -> RangeTooLargeError:
    return RangeTooLargeError(
        f"state {spec.name!r}: grouping reads and folds all rows of a range, and this one has over {most:,}; give a "
        "prefix or a smaller range, fewer measures if some of them are sketches, or keep a state of these groups"
    )
