"""How the pages write numbers, sizes, times and keys."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django import template
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from webapp.dashboard import attention
from webapp.dashboard.attention import Skew, worst_skew
from webapp.dashboard.entries import EntriesQuery
from webapp.dashboard.maintenance import Figure
from webapp.states.queries import BatchSummary, PipelineStatus

register = template.Library()

SHOWN_CHARACTERS = 160


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


@register.filter
def at(moment: datetime | str | None) -> str | SafeString:
    """A time to the second, in UTC and saying so; the page's script tells it in the reader's own zone."""
    return _time(moment, "at", "") if moment else "—"


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
    if form == "at":
        return f"{at:%Y-%m-%d %H:%M:%S} UTC"
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
    return attention.tone(status)


@register.filter
def key_tone(status: str) -> str:
    return {"found": "good", "expired": "watch"}.get(status, "calm")


@register.filter
def apikey_tone(status: str) -> str:
    return {"active": "good", "expired": "watch"}.get(status, "calm")


@register.filter
def urgency(pipeline: PipelineStatus) -> str:
    return attention.urgency(pipeline)


@register.filter
def skew(batch: BatchSummary) -> Skew | None:
    return worst_skew(batch)


@register.filter
def times(ratio: float | None) -> str:
    """A ratio as a multiple; one that no reader would see as more than 1 is even."""
    return "—" if ratio is None else f"{ratio:.1f}×"  # noqa: RUF001


@register.filter
def amount(figure: Figure, count: int) -> str:
    """A number of bytes or rows, as the figure counts them."""
    return size(count) if figure.is_bytes else number(count)


@register.filter
def changed(figure: Figure) -> str:
    if figure.change is None:
        return "—"
    if not figure.change:
        return "none"
    return f"{'+' if figure.change > 0 else '−'}{amount(figure, abs(figure.change))}"  # noqa: RUF001


@register.filter
def of(mapping: dict[str, Any], name: str) -> Any:
    return mapping.get(name)


@register.filter
def query(parts: dict[str, str], before: str = "") -> str:
    """A query string of these parts, and of where the next page begins."""
    return urlencode(parts | ({"before": before} if before else {}))


@register.filter(name="json")
def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


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
def key_address(state: str, key: list[Any]) -> SafeString:
    """The address of the page of one key."""
    return format_html("{}?{}", reverse("dashboard:key", args=[state]), urlencode({"key": _compact(key)}))


@register.simple_tag
def turn_key(request: HttpRequest, key: str, measure: str) -> SafeString:
    """As `turn`, for the measure that a key's chart shows."""
    parts = {"key": key, "by": measure}
    if before := request.GET.get("before"):
        parts["before"] = before
    return turn(f"?{urlencode(parts)}", request.path)


def _compact(key: list[Any]) -> str:
    return json.dumps(key, ensure_ascii=False, separators=(",", ":"))


@register.simple_tag
def turn(address: str, path: str) -> SafeString:
    """The attributes of a link that turns the live part of the page to another query, with or without JavaScript."""
    return format_html(
        'href="{0}{1}" hx-get="{0}{1}" hx-target="#live" hx-swap="tide" hx-push-url="true" hx-sync="#live:replace"',
        path,
        address,
    )
