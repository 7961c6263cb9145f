"""Template filters and tags: how pages write numbers, sizes, times and keys, and link to other queries."""

import json
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from django import template
from django.conf import settings
from django.http import HttpRequest
from django.template import Context
from django.templatetags.static import static
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from tidegauge.webapp.catalog import verdicts
from tidegauge.webapp.catalog.batches import BatchSummary
from tidegauge.webapp.catalog.dead_letters import DeadLetterSummary
from tidegauge.webapp.catalog.pipeline_status import PipelineStatus
from tidegauge.webapp.catalog.retention import time_to_live
from tidegauge.webapp.catalog.state_summary import StateSummary
from tidegauge.webapp.catalog.verdicts import Verdict
from tidegauge.webapp.console.dashboard.entries import EntriesQuery
from tidegauge.webapp.console.dashboard.letter_marks import marked_line
from tidegauge.webapp.console.dashboard.navigation import Navigation
from tidegauge.webapp.console.dashboard.navigation import navigation as places_of
from tidegauge.webapp.console.dashboard.run_rows import Figure
from tidegauge.webapp.console.dashboard.skew import Skew, worst_skew
from tidegauge.webapp.console.dashboard.strip import Strip, strip
from tidegauge.webapp.console.dashboard.tabs import Tab
from tidegauge.webapp.console.dashboard.tabs import pipeline_tabs as tabs_of_pipeline
from tidegauge.webapp.console.dashboard.tabs import state_tabs as tabs_of_state
from tidegauge.webapp.core import first_paint
from tidegauge.webapp.core.writing import duration, number, rate, share, size

register = template.Library()
for writer in (number, rate, share, size, duration):
    register.filter(writer)
register.filter("retention", time_to_live)

MAX_CHARACTERS = 160
# Characters of a part of a key that may be too wide for its column.
LONG_PART = 24

# Replaced by another range: the former one, the version that the page shows, and the position among older versions.
NOT_KEPT = ("range", "from", "to", "v", "before")


@register.filter
def commands(message: str) -> SafeString:
    """Show the parts of a message between backticks, such as commands, as code."""
    parts = enumerate(message.split("`"))
    return format_html_join(
        "", "{}", ((format_html("<code>{}</code>" if place % 2 else "{}", part),) for place, part in parts)
    )


@register.filter
def with_copy(message: str, name: str) -> SafeString:
    """Show the commands of a message, each with a button that copies it. name: unique on the page."""
    parts = enumerate(message.split("`"))
    shown = (_copied(part, f"{name}-{place}") if place % 2 else format_html("{}", part) for place, part in parts)
    return format_html_join("", "{}", ((part,) for part in shown))


def _copied(command: str, name: str) -> SafeString:
    return format_html(
        '<code id="command-{0}">{1}</code> <button class="quiet copy" type="button" data-copy="#command-{0}">Copy'
        '<span class="visually-hidden"> {1}</span></button>',
        name,
        command,
    )


@register.simple_tag
def remedy(pipeline: PipelineStatus, option: str) -> SafeString:
    """The command that runs a pipeline with an option, with a button that copies it."""
    return _copied(pipeline.start.command("run", pipeline.name, option), f"{pipeline.name}{option}")


@register.filter
def marked(text: str) -> SafeString:
    """Render the code and the bold words of a Markdown text."""
    marks = ("{}", "<strong>{}</strong>")
    parts = enumerate(text.split("**"))
    return format_html_join("", "{}", ((format_html(marks[place % 2], commands(part)),) for place, part in parts))


@register.filter
def paragraphs(text: str) -> list[str]:
    return [paragraph for paragraph in text.split("\n\n") if paragraph]


@register.filter
def ago(moment: datetime | str | None, suffix: str = " ago") -> str | SafeString:
    """The age of a time: 3 s ago. The page's script keeps it up to date."""
    return _time(moment, "ago", suffix) if moment else "—"


@register.filter
def until(moment: datetime | None) -> str | SafeString:
    """The distance of a future time: in 3 s. The page's script counts it down."""
    return _time(moment, "until", "") if moment else "—"


@register.filter
def at(moment: datetime | str | None) -> str | SafeString:
    """A time to the second, marked as UTC; the page's script shows it in the reader's time zone."""
    return _time(moment, "at", "") if moment else "—"


def _time(moment: datetime | str, form: str, suffix: str) -> SafeString:
    at = (datetime.fromisoformat(moment) if isinstance(moment, str) else moment).astimezone(UTC)
    return format_html(
        '<time datetime="{}" title="{}" data-form="{}" data-suffix="{}">{}</time>',
        at.isoformat(),
        f"{at:%Y-%m-%d %H:%M:%S} UTC",
        form,
        suffix,
        _written(at, form, suffix),
    )


def _written(at: datetime, form: str, suffix: str) -> str:
    if form == "ago":
        return _passed(at, suffix)
    if form == "until":
        return _left(at)
    if form == "at":
        return f"{at:%Y-%m-%d %H:%M:%S} UTC"
    precision = "minutes" if not at.second and not at.microsecond else "auto"
    return at.isoformat(" ", precision).replace("+00:00", "Z")


def _left(at: datetime) -> str:
    seconds = (at - datetime.now(UTC)).total_seconds() // 1
    return f"in {duration(seconds)}" if seconds >= 1 else "now"


def _passed(at: datetime, suffix: str) -> str:
    seconds = (datetime.now(UTC) - at).total_seconds() // 1
    return "just now" if suffix and seconds < 1 else f"{duration(max(0, seconds))}{suffix}"


@register.filter
def key_tone(status: str) -> str:
    return {"found": "good", "expired": "watch"}.get(status, "calm")


@register.filter
def apikey_tone(status: str) -> str:
    return {"active": "good", "expired": "watch"}.get(status, "calm")


@register.filter
def verdict(pipeline: PipelineStatus) -> Verdict:
    return verdicts.verdict(pipeline)


@register.filter
def skew(batch: BatchSummary) -> Skew | None:
    return worst_skew(batch)


@register.filter
def times(ratio: float | None) -> str:
    """A ratio as a multiple, with one digit."""
    return "—" if ratio is None else f"{ratio:.1f}×"  # noqa: RUF001


@register.filter
def amount(figure: Figure, count: int) -> str:
    """A count of bytes or rows, in the unit of the figure."""
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
    """A query string of these parts; before: where the next page starts."""
    return urlencode(parts | ({"before": before} if before else {}))


@register.filter
def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@register.filter
def utc_field(moment: datetime) -> str:
    """A time in UTC as the value of a field for times, which takes no offset."""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S}"


@register.filter(name="json")
def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


@register.filter
def part(value: Any, sql_type: str = "") -> str | SafeString:
    """One part of a key: a time in UTC, as in lookups; an empty text as the word `empty`, to make it visible."""
    if sql_type == "timestamptz":
        return _time(value, "key", "")
    if value == "":
        return format_html('<span class="muted">{}</span>', "empty")
    return str(value).lower() if isinstance(value, bool) else str(value)


@register.filter
def key_parts(key: list[Any], columns: dict[str, str]) -> SafeString:
    """A key in one line, whose long parts are cut off by the style sheet; `all` for the key of a global state."""
    parts = (
        (format_html('<bdi title="{}">{}</bdi>', value, shown) if len(str(value)) > LONG_PART else shown,)
        for value, shown in ((value, part(value, sql_type)) for _, value, sql_type in typed(key, columns))
    )
    return format_html_join(mark_safe("<i> · </i>"), "{}", parts) or SafeString("all")


@register.filter
def cell(value: Any) -> str:
    """The value of a measure, or a shortened JSON value."""
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return number(value)
    return shortened(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


@register.filter
def measured(value: Any) -> str | SafeString:
    """The value of a measure; quantiles, top items and merged fields as a list of names and values."""
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
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}…"


@register.filter
def marked_input(letter: DeadLetterSummary) -> SafeString:
    """The input of a dead letter in one line, with the field that its reason names marked."""
    parts = marked_line((letter.line or "").replace("\n", " "), letter.reason)
    mark = format_html("<mark>{}</mark>", parts.marked) if parts.marked else ""
    return format_html("{}{}{}", parts.before, mark, parts.after)


@register.filter
def file_name(path: str) -> str:
    return path.rsplit("/", 1)[-1]


@register.filter
def pairs(mapping: dict[str, Any]) -> list[tuple[str, Any]]:
    """The items of a mapping; `mapping.items` in a template would look up a key named `items` first."""
    return list(mapping.items())


@register.filter
def typed(key: list[Any], columns: dict[str, str]) -> list[tuple[str, Any, str]]:
    """Pair the parts of a key with the names and types of their columns."""
    return [(name, value, sql_type) for value, (name, sql_type) in zip(key, columns.items(), strict=True)]


@register.filter
def with_measure(query: EntriesQuery, measure: str) -> str:
    return query.address(by=measure)


@register.simple_tag(takes_context=True)
def health(context: Context) -> Strip | None:
    """The strip with the problems of the pipelines that the user sees."""
    request = context["request"]
    return strip(request) if request.user.is_authenticated else None


@register.simple_tag(takes_context=True)
def style(context: Context, name: str) -> SafeString:
    """A style sheet that the first paint waits for: within the page at a first visit, else as a link."""
    if first_paint.is_first_visit(context.get("request")):
        return format_html("<style>{}</style>", mark_safe(first_paint.sheet(name)))  # noqa: S308  one of our files
    return format_html('<link rel="stylesheet" href="{}">', static(name))


@register.simple_tag(takes_context=True)
def first_visit(context: Context) -> dict[str, Any] | None:
    """What a browser stores after its first visit, and what its cookie then says; None if it has that already.

    is_new: it has no files of another release either, so nobody has chosen a theme in it.
    """
    request = context.get("request")
    if request is None or not first_paint.is_first_visit(request):
        return None
    return {
        "files": list(map(static, settings.TIDEGAUGE_FIRST_STYLES)),
        "version": first_paint.stored_version(),
        "is_new": first_paint.COOKIE not in request.COOKIES,
    }


@register.simple_tag(takes_context=True)
def navigation(context: Context) -> Navigation | None:
    """The places that the reader may open. Pages for errors may be rendered without a request and a user."""
    return places_of(context.get("request"), context.get("user") or None)


@register.simple_tag(takes_context=True)
def pipeline_tabs(context: Context, pipeline: PipelineStatus) -> list[Tab]:
    return tabs_of_pipeline(context["request"], pipeline)


@register.simple_tag(takes_context=True)
def state_tabs(context: Context, state: StateSummary) -> list[Tab]:
    return tabs_of_state(context["request"], state)


@register.simple_tag
def key_address(state: str, key: list[Any]) -> SafeString:
    """The address of the page of one key."""
    compact = json.dumps(key, ensure_ascii=False, separators=(",", ":"))
    return format_html("{}?{}", reverse("dashboard:key", args=[state]), urlencode({"key": compact}))


@register.simple_tag
def link_measure(request: HttpRequest, key: str, measure: str) -> SafeString:
    """As `link`, to the page of a key with the chart of another measure."""
    parts = {"key": key, "by": measure}
    parts |= {name: request.GET[name] for name in ("before", "range", "from", "to") if request.GET.get(name)}
    return link(f"?{urlencode(parts)}", request.path)


@register.simple_tag
def link_range(request: HttpRequest, name: str) -> SafeString:
    """As `link`, to the same page with the charts of another time range."""
    return link(f"?{urlencode([*kept_parts(request), ('range', name)])}", request.path)


@register.simple_tag
def kept_parts(request: HttpRequest) -> list[tuple[str, str]]:
    """The query parameters that stay when another time range is chosen."""
    given = ((name, value) for name, values in request.GET.lists() for value in values)
    return [(name, value) for name, value in given if value and name not in NOT_KEPT]


@register.simple_tag(takes_context=True)
def other_page(context: Context, part: str, number: int, of: str) -> str:
    """The address of another page of one table, with the rest of the query as it is. of: the id of its heading."""
    kept = {name: value for name, value in context["request"].GET.items() if value and name not in (part, "v")}
    return f"?{urlencode({**kept, part: number})}#{of}"


@register.simple_tag
def link(address: str, path: str) -> SafeString:
    """The attributes of a link that shows another query in the live part of the page, with or without JavaScript."""
    return format_html(
        'href="{0}{1}" hx-get="{0}{1}" hx-target="#live" hx-swap="merge" hx-push-url="true" hx-sync="#live:replace"',
        path,
        address,
    )
