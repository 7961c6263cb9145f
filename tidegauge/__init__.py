"""Tidegauge's public face: `from tidegauge import Pipeline, Stream, StateSpec, Count, JsonFiles`.

`__init__.pyi` lists the names. A name is imported from where it lives when it is first used, so that `tidegauge` costs
what is used of it: a state's declaration loads no Spark, and works where none is installed.
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
