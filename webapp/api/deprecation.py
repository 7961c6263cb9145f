"""Routes on their way out say so in every answer: `Deprecation` (RFC 9745), `Sunset` (RFC 8594), `Link`.

TIDEMARK_DEPRECATED maps the name of a route to {"since": date, "sunset": date, "link": address}; all but `since` may be
left out.
"""

from collections.abc import Mapping
from datetime import UTC, date, datetime

from django.utils.http import http_date


def headers(marked: Mapping[str, str]) -> dict[str, str]:
    """Return the headers that say what `marked` does. Raises ValueError for what is no date."""
    told = {"Deprecation": f"@{_seconds(marked['since'])}"}
    if "sunset" in marked:
        told["Sunset"] = http_date(_seconds(marked["sunset"]))
    if "link" in marked:
        told["Link"] = f'<{marked["link"]}>; rel="deprecation"; type="text/html"'
    return told


def _seconds(day: str) -> int:
    at = date.fromisoformat(day)
    return int(datetime(at.year, at.month, at.day, tzinfo=UTC).timestamp())
