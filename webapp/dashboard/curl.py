"""The same question to the API, as a line for a terminal."""

import json
from collections.abc import Sequence
from shlex import quote
from typing import Any

from django.http import HttpRequest


def curl(request: HttpRequest, name: str, key: Sequence[Any]) -> str:
    """key: as JSON has it."""
    return (
        f"curl -s {request.build_absolute_uri(f'/api/v1/states/{name}/query')} \\\n"
        '  -H "Authorization: Bearer $TIDEMARK_API_KEY" \\\n'
        '  -H "Content-Type: application/json" \\\n'
        f"  -d {quote(json.dumps({'keys': [key]}))}"
    )
