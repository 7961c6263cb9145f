"""Tidegauge's public face: `from tidegauge import Pipeline, Stream, StateSpec, Count, JsonFiles`.

`__init__.pyi` lists the names. Each name is imported from its module at first use, so that a program loads only what it
uses: the declaration of a state does not load Spark, and works without Spark installed.
"""

from typing import Any

from tidegauge.names import imported, public_names

__version__ = "0.1.0"

__all__ = public_names()


def __getattr__(name: str) -> Any:
    value = globals()[name] = imported(name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
