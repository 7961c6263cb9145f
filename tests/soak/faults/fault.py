"""Fault: what can be done to a running world, in a register that a schedule draws from."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tests.soak.world import World


@dataclass(frozen=True)
class Fault:
    """inject: does it, with the world's chance, and returns a note for the report. group: of the report's table.

    fits: whether it can happen to a kind of pipeline. weight: how often it is drawn. goes_back: whether the committed
    batch may be an older one until it has recovered. never_whole: whether the two states may differ until then.
    """

    name: str
    group: str
    inject: Callable[[World], str | None]
    fits: Callable[[World], bool] = lambda world: True
    weight: int = 1
    goes_back: bool = False
    never_whole: bool = False


FAULTS: dict[str, Fault] = {}


def fault(
    group: str,
    *,
    weight: int = 1,
    goes_back: bool = False,
    never_whole: bool = False,
    fits: Callable[[World], bool] = lambda world: True,
) -> Callable[[Callable[[World], str | None]], Callable[[World], str | None]]:
    """Register a function as a fault, under its name with spaces."""

    def register(inject: Callable[[World], str | None]) -> Callable[[World], str | None]:
        name = inject.__name__.replace("_", " ")
        FAULTS[name] = Fault(name, group, inject, fits, weight, goes_back, never_whole)
        return inject

    return register


def fitting(world: World, names: Iterable[str] = ()) -> list[Fault]:
    """Return the faults that can happen to a world, those of `names` if there are any."""
    wanted = set(names) or set(FAULTS)
    return [FAULTS[name] for name in sorted(wanted & set(FAULTS)) if FAULTS[name].fits(world)]
