"""The OpenAPI document of the whole API, built once per process, because building takes 1 to 3 s of CPU."""

from functools import lru_cache
from threading import Lock
from typing import Any

from django.conf import settings
from drf_spectacular.generators import SchemaGenerator

from tidegauge.state_backends import BACKENDS

# Held while something is built, because drf-spectacular is not thread-safe, and one build is enough for all who wait.
BUILDING = Lock()

# What the document depends on: the backends that are registered, and where the events process is.
Variant = tuple[tuple[str, ...], str]


def variant() -> Variant:
    return tuple(BACKENDS), settings.TIDEGAUGE_EVENTS_URL


@lru_cache(maxsize=2)
def document(of: Variant) -> dict[str, Any]:
    """Return the document, which callers must not change. Held by the caller: BUILDING."""
    found: dict[str, Any] = SchemaGenerator().get_schema(public=True)
    return found
