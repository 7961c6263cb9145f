"""How the pages write numbers, sizes, times and keys."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from django import template
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from webapp.dashboard.entries import EntriesQuery

register = template.Library()

SHOWN_CHARACTERS = 160

TONES = {
    "running": "good",
    "finished": "calm",
    "stopped": "calm",
    "never started": "calm",
    "paused": "watch",
    "starting": "watch",
    "restarting": "watch",
    "failed": "bad",
    "lost": "bad",
}


@register.filter
def number(figure: float | None) -> str:
    """12345 -> 12,345; 12.3456 -> 12.35; 1234567.8 -> 1,234,568."""
    if figure is None:
        return "—"
    if isinstance(figure, int) or abs(figure) >= 10_000 or float(figure).is_integer():
        return f"{figure:,.0f}"
    return f"{figure:,.2f}"


@register.filter
def rate(figure: float) -> str:
    return number(figure if 0 < figure < 10 else round(figure))


@register.filter
def size(byte_count: int) -> str:
    figure = float(byte_count)
    for unit in ("B", "kB", "MB", "GB"):
        if figure < 1000:
            return f"{figure:.0f} {unit}" if figure >= 10 or unit == "B" else f"{figure:.1f} {unit}"
        figure /= 1000
    return f"{figure:,.1f} TB"


@register.filter
def duration(length: timedelta | float | None) -> str:
    """The two largest units that matter: 0.42 s, 12 s, 3 min, 5 h, 400 days."""
    if length is None:
        return "—"
    seconds = length.total_seconds() if isinstance(length, timedelta) else length
    if seconds < 10 and seconds % 1:
        return f"{seconds:.2f} s"
    for unit, unit_seconds, until in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172_800)):
        if seconds < until:
            return f"{seconds // unit_seconds:.0f} {unit}"
    return f"{seconds // 86_400:,.0f} days"


@register.filter
def ago(moment: datetime | str | None, suffix: str = " ago") -> str | SafeString:
    """A time as it is told: 3 s ago. The page's script keeps it up to date."""
    return _time(moment, "ago", suffix) if moment else "—"


@register.filter
def until(moment: datetime | None) -> str | SafeString:
    """A time to come as it is told: in 3 s. The page's script counts it down."""
    return _time(moment, "until", "") if moment else "—"


def _time(moment: datetime | str, form: str, suffix: str) -> SafeString:
    at = (datetime.fromisoformat(moment) if isinstance(moment, str) else moment).astimezone(UTC)
    return format_html(
        '<time datetime="{}" title="{}" data-form="{}" data-suffix="{}">{}</time>',
        at.isoformat(),
        f"{at:%Y-%m-%d %H:%M:%S} UTC",
        form,
        suffix,
        _told(at, form, suffix),
    )


def _told(at: datetime, form: str, suffix: str) -> str:
    if form == "ago":
        return _passed(at, suffix)
    if form == "until":
        return _left(at)
    return at.isoformat(" ", _precision(at)).replace("+00:00", "Z")


def _left(at: datetime) -> str:
    seconds = (at - datetime.now(UTC)).total_seconds() // 1
    return f"in {duration(seconds)}" if seconds >= 1 else "now"


def _passed(at: datetime, suffix: str) -> str:
    seconds = (datetime.now(UTC) - at).total_seconds() // 1
    return "just now" if suffix and seconds < 1 else f"{duration(max(0, seconds))}{suffix}"


def _precision(at: datetime) -> str:
    return "minutes" if not at.second and not at.microsecond else "auto"


@register.filter
def tone(status: str) -> str:
    return TONES.get(status, "watch")


@register.filter
def part(value: Any, sql_type: str = "") -> str | SafeString:
    """One part of a key: a time as lookups and searches spell it, in UTC; an empty text made visible."""
    if sql_type == "timestamptz":
        return _time(value, "key", "")
    if value == "":
        return format_html('<span class="muted">{}</span>', "empty")
    return str(value).lower() if isinstance(value, bool) else str(value)


@register.filter
def cell(value: Any) -> str:
    """A measure's value, or a JSON value in short."""
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return number(value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"


@register.filter
def measured(value: Any) -> str | SafeString:
    """What a measure holds; quantiles, leading items and merged fields as a list of names and values."""
    pairs = _named(value)
    if pairs is None:
        return cell(value)
    lines = format_html_join("", "<div><dt>{}</dt><dd>{}</dd></div>", ((name, cell(part)) for name, part in pairs))
    return format_html('<dl class="pairs">{}</dl>', lines)


def _named(value: Any) -> list[tuple[str, Any]] | None:
    if isinstance(value, dict) and value:
        return list(value.items())
    if isinstance(value, list) and value and all(isinstance(entry, dict) and "item" in entry for entry in value):
        return [(entry["item"], entry.get("count")) for entry in value]
    return None


@register.filter
def shortened(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"


@register.filter
def file_name(path: str) -> str:
    return path.rsplit("/", 1)[-1]


@register.filter
def pairs(mapping: dict[str, Any]) -> list[tuple[str, Any]]:
    """What `mapping.items` would be, were there never a key of that name."""
    return list(mapping.items())


@register.filter
def typed(key: list[Any], columns: dict[str, str]) -> list[tuple[str, Any, str]]:
    """Pair the parts of a key with the names and types of their columns."""
    return [(name, value, sql_type) for value, (name, sql_type) in zip(key, columns.items(), strict=True)]


@register.filter
def with_measure(query: EntriesQuery, measure: str) -> str:
    return query.address(by=measure)


@register.simple_tag
def turn(address: str, path: str) -> SafeString:
    """The attributes of a link that turns the live part of the page to another query, with or without JavaScript."""
    return format_html(
        'href="{0}{1}" hx-get="{0}{1}" hx-target="#live" hx-swap="tide" hx-push-url="true" hx-sync="#live:replace"',
        path,
        address,
    )
