"""Search over what a user may see: pipelines, states, saved views, keys, batches, actions, pages, documentation.

It reads the catalog, and batches and keys by primary key, so its cost does not depend on the number of rows.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest
from django.urls import reverse

from tidegauge.state_backends import StateSpec
from tidegauge.state_backends.schema.definition import from_definition
from tidegauge.webapp.catalog import queries
from tidegauge.webapp.catalog.visible import Visible, of_request
from tidegauge.webapp.console.dashboard.pasted import whole_number
from tidegauge.webapp.console.dashboard.search.keys import MOST_STATES, FoundKey, find_keys
from tidegauge.webapp.console.dashboard.search.pages import Result, actions, documentation, pages
from tidegauge.webapp.console.dashboard.templatetags.dashboard import key_address
from tidegauge.webapp.console.saved_views.selectors import views_with

MOST_CHARACTERS = 200
# Results per group.
MOST_RESULTS = 6
MOST_VIEWS = 100

# Before a key: copy it instead of opening its page.
COPY = "copy "

# Words before a batch number that are ignored.
BATCH_WORDS = {"batch", "txid", "#"}

NOT_WORDS = re.compile(r"[\W_]+")


@dataclass(frozen=True)
class Group:
    """name: heading. more: how many further results there are; None if that is unknown."""

    name: str
    results: Sequence[Result]
    more: int | None = 0

    @property
    def is_named(self) -> bool:
        """Whether its titles are names or keys rather than words."""
        return self.name in ("Pipelines", "States", "Keys", "Batches")


@dataclass(frozen=True)
class Found:
    """text: what was searched for. note: what was left out."""

    text: str
    groups: Sequence[Group]
    note: str = ""

    @property
    def count(self) -> int:
        return sum(len(group.results) for group in self.groups)


@dataclass(frozen=True)
class Named:
    """The pipelines and states that a user sees. pipelines: rows of PIPELINES."""

    pipelines: list[dict[str, Any]]
    states: list[tuple[str, StateSpec]]

    @classmethod
    def of(cls, visible: Visible) -> "Named":
        rows = [row for row in queries.fetch(STATES, {}) if visible.sees(row["name"])]
        states = [(row["pipeline"], from_definition(row["name"], row["definition"], row["ttl"])) for row in rows]
        feeding = {pipeline for pipeline, _ in states}
        pipelines = [row for row in queries.fetch(PIPELINES, {}) if visible.names is None or row["name"] in feeding]
        return cls(pipelines, states)


def search(request: HttpRequest) -> Found:
    """Return what a user finds for the text `q` of a request."""
    text = request.GET.get("q", "").replace("\0", "").strip()[:MOST_CHARACTERS]
    if not text:
        return Found("", [])
    visible = of_request(request)
    named = Named.of(visible)
    wanted = text[len(COPY) :].strip() if (copies := text.lower().startswith(COPY)) else text
    keys = find_keys(wanted, [spec for _, spec in named.states], visible.scope, MOST_RESULTS + 1)
    groups = [
        _matching("Pipelines", text, _pipelines(named)),
        _matching("States", text, _states(named)),
        _matching("Saved views", text, _views(text, request.user, visible)),
        _cut("Copy", _copies(keys.keys)) if copies else _cut("Keys", _pages_of(keys.keys)),
        _cut("Batches", _batches(text, [row["name"] for row in named.pipelines])),
        _matching("Actions", text, actions(request, named.pipelines, [spec for _, spec in named.states])),
        _matching("Pages", text, pages(request, [row["name"] for row in named.pipelines])),
        _matching("Documentation", text, documentation()),
    ]
    return Found(text, [group for group in groups if group.results], _note(keys.is_partial, keys.states))


def _pages_of(keys: Sequence[FoundKey]) -> list[Result]:
    return [Result(_written(each.key), each.state, key_address(each.state, each.key)) for each in keys]


def _copies(keys: Sequence[FoundKey]) -> list[Result]:
    """Return the keys to copy, as the API takes them."""
    return [
        Result(f"Copy {_written(each.key)}", each.state, "", copies=json.dumps(each.key, ensure_ascii=False))
        for each in keys
    ]


def _pipelines(named: Named) -> Iterable[Result]:
    for row in named.pipelines:
        yield Result(row["name"], row["description"], reverse("dashboard:pipeline", args=[row["name"]]))


def _states(named: Named) -> Iterable[Result]:
    for pipeline, spec in named.states:
        columns = ", ".join(spec.key) or "global"
        address = reverse("dashboard:state", args=[spec.name])
        yield Result(spec.name, f"{pipeline} · {columns}", address, " ".join(spec.measures))


def _views(text: str, user: Any, visible: Visible) -> Iterable[Result]:
    for view in views_with(text, user, visible)[:MOST_VIEWS]:
        yield Result(view.name, view.state, view.get_absolute_url())


def _batches(text: str, pipelines: list[str]) -> list[Result]:
    """Return the batches with a number; the name of a pipeline may precede it: `flights 123`."""
    *words, last = [word for word in text.lower().split() if word not in BATCH_WORDS] or [""]
    txid = whole_number(last.removeprefix("#"))
    asked = [name for name in pipelines if all(word in name.lower() for word in words)]
    if txid is None or not asked:
        return []
    rows = queries.fetch(BATCHES, {"txid": txid, "pipelines": asked, "limit": MOST_RESULTS + 1})
    return [
        Result(f"{row['pipeline']} {txid}", _batch_note(row), reverse("dashboard:batch", args=[row["pipeline"], txid]))
        for row in rows
    ]


def _batch_note(row: dict[str, Any]) -> str:
    return f"{'committed' if row['is_committed'] else 'open'}, {row['batch_time']:%Y-%m-%d %H:%M} UTC"


def _written(key: list[Any]) -> str:
    return " · ".join(str(part).lower() if isinstance(part, bool) else str(part) for part in key)


def _matching(name: str, text: str, results: Iterable[Result]) -> Group:
    """Return the results that have every word of a text; titles that equal it, or begin with it, come first."""
    words = text.lower().split()
    found = sorted(
        (each for each in results if all(_has(each.searched, word) for word in words)),
        key=lambda each: (_rank(each.title.lower(), text.lower(), words), each.title),
    )
    return Group(name, found[:MOST_RESULTS], max(0, len(found) - MOST_RESULTS))


def _has(searched: str, word: str) -> bool:
    """Return whether a text contains a word; a short one must begin a word, so that `1` does not find 401."""
    return word in searched if len(word) > 2 else any(part.startswith(word) for part in NOT_WORDS.split(searched))


def _rank(title: str, text: str, words: list[str]) -> int:
    if title == text:
        return 0
    if title.startswith(text):
        return 1
    return 2 if all(word in title for word in words) else 3


def _cut(name: str, results: list[Result]) -> Group:
    return Group(name, results[:MOST_RESULTS], None if len(results) > MOST_RESULTS else 0)


def _note(is_partial: bool, states: int) -> str:
    if not is_partial:
        return ""
    return f"Keys were looked up in {MOST_STATES} of {states} states. To search one state, name it first: STATE KEY."


PIPELINES = """
SELECT p.name, p.description, coalesce(wanted.paused, false) AS is_paused,
       EXISTS (SELECT FROM tidegauge.dead_letter l WHERE l.pipeline = p.name) AS has_dead_letters
FROM tidegauge.pipeline p LEFT JOIN tidegauge.pipeline_wish wanted ON wanted.pipeline = p.name
WHERE p.reprocesses IS NULL ORDER BY p.name
"""

STATES = "SELECT name, pipeline, definition, ttl FROM tidegauge.state ORDER BY name"

BATCHES = """
SELECT b.pipeline, b.txid <= p.committed_txid AS is_committed, b.batch_time AT TIME ZONE 'UTC' AS batch_time
FROM tidegauge.batch b JOIN tidegauge.pipeline p ON p.name = b.pipeline
WHERE b.pipeline = ANY(%(pipelines)s) AND b.txid = %(txid)s ORDER BY b.pipeline LIMIT %(limit)s
"""
