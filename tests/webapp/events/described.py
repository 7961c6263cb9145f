"""Events compared with what /api/schema says of them."""

from functools import cache
from typing import Any

from drf_spectacular.generators import SchemaGenerator
from jsonschema import Draft202012Validator


def check_event(path: str, event: str, data: Any) -> None:
    """Raises ValidationError unless the data has the members of its event's schema, and no other ones."""
    stream = "Commits" if path.startswith("/events/tide") else "State"
    components = _components()
    schema = components["schemas"][f"{stream}{event.capitalize()}Event"] | {"additionalProperties": False}
    Draft202012Validator(schema | {"components": components}).validate(data)


@cache
def _components() -> Any:
    return SchemaGenerator().get_schema(request=None, public=True)["components"]
