"""Lineage: what each state is computed from, and who reads it.

The inputs are those that its pipeline's driver has recorded. Consumers are other states, published saved queries,
webhooks for its commits, and the API keys that have read it in the last USED_DAYS. Restricted callers see only states,
because the text of a source may name what they may not see.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Sum
from django.http import HttpRequest
from django.urls import reverse

from tidegauge.webapp.accounts import usage
from tidegauge.webapp.accounts.models import ApiKey
from tidegauge.webapp.accounts.permissions import VIEW_KEYS
from tidegauge.webapp.api.saved_queries.models import SavedQuery
from tidegauge.webapp.catalog import queries
from tidegauge.webapp.catalog.visible import Visible, of_request
from tidegauge.webapp.notify.webhooks.models import Kind, Webhook

USED_DAYS = 7
VIEW_WEBHOOKS = "webhooks.view_webhook"

SOURCE = "source"
STATE, LOOKS_UP, LOOKED_UP = "state", "looks up in", "looked up for"

PAGE_ROWS = 50

STATES = """
SELECT name, pipeline, declared -> 'inputs' AS inputs,
       CASE WHEN finding <> '' THEN 'not served' WHEN last_fed_txid IS NOT NULL THEN 'not fed' ELSE 'served' END
           AS status
FROM tidegauge.state ORDER BY pipeline, name
"""

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Link:
    """One end of an edge. kind: source, state, looks up in, looked up for, saved query, webhook or API key.

    address: empty if it has no page.
    """

    kind: str
    name: str
    address: str = ""
    detail: str = ""


@dataclass(frozen=True)
class StateLineage:
    """inputs, consumers: of a state. is_recorded: whether a driver has recorded the inputs.

    status: served, not served, or not fed.
    """

    state: str
    pipeline: str
    is_recorded: bool
    inputs: Sequence[Link]
    consumers: Sequence[Link]
    status: str

    @property
    def names(self) -> list[str]:
        return [self.state, self.pipeline, *(link.name for link in (*self.inputs, *self.consumers))]

    @property
    def states(self) -> set[str]:
        """The state and its neighbours."""
        links = (*self.inputs, *self.consumers)
        return {self.state, *(link.name for link in links if link.kind in (STATE, LOOKS_UP, LOOKED_UP))}


def lineage(request: HttpRequest, *, pipeline: str = "", state: str = "") -> list[StateLineage]:
    """Return the lineage of the states that the user sees: of all, of one pipeline, or of one state."""
    visible = of_request(request)
    rows = [row for row in queries.fetch(STATES, {}) if visible.sees(row["name"])]
    known = {row["name"] for row in rows}
    wanted = {
        row["name"]: row
        for row in rows
        if row["pipeline"] == (pipeline or row["pipeline"]) and row["name"] == (state or row["name"])
    }
    consumers = _states_fed(rows)
    if visible.scope.is_unrestricted:
        for name, link in _readers(request, wanted):
            consumers[name].append(link)
    return [
        StateLineage(
            name,
            row["pipeline"],
            row["inputs"] is not None,
            _inputs(row, known, visible),
            consumers[name],
            row["status"],
        )
        for name, row in wanted.items()
    ]


def _inputs(row: Row, known: Collection[str], visible: Visible) -> list[Link]:
    links = [_state(kind, name) for kind, name in _states_read(row) if name in known]
    if not visible.scope.is_unrestricted:
        return links
    stores = [Link(kind, name) for kind, name in _states_read(row) if name not in known]
    return [*(Link(SOURCE, text) for text in (row["inputs"] or {}).get("sources", ())), *links, *stores]


def _states_fed(rows: Iterable[Row]) -> defaultdict[str, list[Link]]:
    """Return the states that read each state."""
    fed = defaultdict(list)
    for row in rows:
        for kind, name in _states_read(row):
            fed[name].append(_state(LOOKED_UP if kind == LOOKS_UP else kind, row["name"]))
    return fed


def _states_read(row: Row) -> Iterator[tuple[str, str]]:
    inputs = row["inputs"] or {}
    yield from ((STATE, name) for name in inputs.get("states", ()))
    yield from ((LOOKS_UP, name) for name in inputs.get("lookups", ()))


def _readers(request: HttpRequest, states: Collection[str]) -> Iterator[tuple[str, Link]]:
    """Yield (state, consumer) for consumers that are not states and that the user may see, at least of these states."""
    published = SavedQuery.objects.filter(published_at__isnull=False, withdrawn_at=None).order_by("name", "version")
    for name, definition in {query.name: query.definition for query in published}.items():
        address = reverse("lookup:saved_query", args=[name])
        for state in dict.fromkeys(read["state"] for read in definition["reads"]):
            yield state, Link("saved query", name, address)
    if request.user.has_perm(VIEW_WEBHOOKS):
        for webhook in Webhook.objects.filter(enabled=True, kinds__contains=[Kind.COMMIT]):
            for state in webhook.states:
                yield state, Link("webhook", webhook.name)
    if request.user.has_perm(VIEW_KEYS):
        names = dict(ApiKey.objects.values_list("prefix", "name"))
        # Filtered, because the page of a state asks at each commit, and usage has a row per hour, key and state.
        used = usage.since(24 * USED_DAYS).filter(state__in=states).order_by().values_list("state", "prefix")
        for state, prefix, requests in used.annotate(Sum("requests")).order_by("prefix"):
            yield state, Link("API key", names.get(prefix, prefix), detail=f"{requests:,} requests in {USED_DAYS} days")


def _state(kind: str, name: str) -> Link:
    return Link(kind, name, reverse("dashboard:state", args=[name]))
