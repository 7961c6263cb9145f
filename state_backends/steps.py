"""Work in steps, which a thread and an event loop can both do, so that it is written once.

Such work is a generator: it yields what it asks for, such as a row of the database, and is sent the answer. It does not
see who gets the answer, and how. An error while getting it ends the work.
"""

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeAlias, TypeVar, cast

Asked = TypeVar("Asked")
Result = TypeVar("Result")

Steps: TypeAlias = Generator[Asked, Any, Result]


def run(steps: Steps[Asked, Result], get: Callable[[Asked], Any]) -> Result:
    """Do the work in this thread and return its result. get: returns the answer to what a step asks for."""
    try:
        asked = next(steps)
        while True:
            asked = steps.send(get(asked))
    except StopIteration as end:
        return cast(Result, end.value)


async def run_on_loop(steps: Steps[Asked, Result], get: Callable[[Asked], Awaitable[Any]]) -> Result:
    """Do what `run` does on the event loop, which is free while `get` waits."""
    try:
        asked = next(steps)
        while True:
            asked = steps.send(await get(asked))
    except StopIteration as end:
        return cast(Result, end.value)
