"""One state: its declaration, its leading keys, and its entries to search, filter, sort and take away."""

from typing import Any

from redis import RedisError

from state_backends.errors import MovedOnError
from state_backends.factory import Reader
from webapp.dashboard import entries
from webapp.dashboard.curl import curl
from webapp.dashboard.entries import REFUSED, EntriesQuery
from webapp.dashboard.live import page
from webapp.dashboard.views.following import of_state
from webapp.states import selectors, specs, stores

ASKED = ("q", "prefix", "order", "by", "as_of", "after", "n")

# Where a state's values live may be away while its catalog is not, or move faster than a long read.
SILENT = (RedisError, MovedOnError)


@of_state
def state(request, feeding, version, name):
    reader = specs.reader(stores.connection(), name)
    asked = {part: request.GET[part] for part in ASKED if request.GET.get(part)}
    try:
        values = _values(reader, EntriesQuery.parse(asked, reader.spec))
    except SILENT:
        # Asked again with the next look, whatever the tide does.
        version, values = "", {"is_silent": True, "example": []}
    shown = {
        "pipeline": feeding,
        "state": selectors.state(name),
        "is_json": not reader.spec.measures,
        "curl": curl(request, name, values["example"]),
    }
    return page(request, "dashboard/state.html", version, shown | values, asked)


def _values(reader: Reader, query: EntriesQuery) -> dict[str, Any]:
    common = {"query": query, "example": [".."] if reader.spec.key else []}
    try:
        return common | (_entries(reader, query) if reader.spec.key else _only_value(reader, query))
    except REFUSED as error:
        return common | {"refusal": str(error)}


def _entries(reader: Reader, query: EntriesQuery) -> dict[str, Any]:
    measures = entries.number_measures(reader.spec)
    measure = query.by or next(iter(measures), "")
    prefix = entries.asked_prefix(query, reader.spec)
    found = entries.entries_page(reader, query, prefix)
    leading = entries.leading_keys(reader, query, prefix, measure) if measure else []
    return {
        "entries": found,
        "measures": measures,
        "measure": measure,
        "leading": leading,
        "exports": query.export(prefix),
        "example": leading[0].key if leading else next((entry["key"] for entry in found.entries), [".."]),
    }


def _only_value(reader: Reader, query: EntriesQuery) -> dict[str, Any]:
    return {"figures": entries.global_value(reader, query.as_of)}
