"""Parameters and headers that several calls share, as /api/schema describes them."""

from typing import Any, Literal

from drf_spectacular.utils import OpenApiParameter

from webapp.lookup.documentation.lookups import MAX_ENTRIES, MAX_VERSIONS

HEADER: Literal["header"] = "header"


def query(name: str, schema: Any = str, description: str = "", **options: Any) -> OpenApiParameter:
    return OpenApiParameter(name, schema, OpenApiParameter.QUERY, description=description, **options)


def told(name: str, description: str, statuses: list[int], schema: Any = str) -> OpenApiParameter:
    """Return a header of these answers."""
    return OpenApiParameter(name, schema, HEADER, description=description, response=statuses)


def limit(most: int, default: int) -> OpenApiParameter:
    return query("limit", {"type": "integer", "minimum": 1, "maximum": most, "default": default})


LIMIT = limit(500, 50)
LOCATION = told("Location", "Where the run is", [202])
ETAG = told("ETag", "Changes when the answer does", [200, 304])
IF_NONE_MATCH = OpenApiParameter(
    "If-None-Match", str, HEADER, description="The ETag of the last answer: 304 if nothing has changed"
)
CONDITIONAL = [IF_NONE_MATCH, ETAG]
MEASURES = query("measures", str, "Which to answer, with commas between; all if absent")
AS_OF = query("as_of", {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}, "As after this batch")

FIRST_PARTS = 'as a JSON list, `["JFK"]`; bare text is the first part alone'
ENTRIES = [
    query("prefix", str, f"The first parts of the keys, {FIRST_PARTS}"),
    query("from", str, f"Keys from here on, {FIRST_PARTS}"),
    query("to", str, f"Keys before this one, {FIRST_PARTS}"),
    query("search", str, "Keys with a part that begins so, whatever its case"),
    query("order_by", str, "A measure, `-` before it for the largest first; in key order if absent"),
    query(
        "limit",
        {"type": "integer", "minimum": 1, "maximum": MAX_ENTRIES},
        "Of a page, 50 if absent. A stream has all entries if absent, and may be asked for more",
    ),
    query("cursor", str, "`next` of the page before, which carries the whole question"),
    query(
        "as_of",
        {"oneOf": [{"type": "integer", "minimum": 0, "maximum": 2**63 - 1}, {"type": "string", "enum": ["committed"]}]},
        "As after this batch, on all pages; `committed`: as after the one that is committed at the first page",
    ),
    MEASURES,
    query("format", {"type": "string", "enum": ["json", "csv", "ndjson", "arrow"]}, "In place of `Accept`"),
    told("Link", 'Where the next page is, `rel="next"`', [200]),
    told("Tidemark-Txid", "Of a stream: the batch that it is of", [200], int),
    told("Content-Disposition", "Of a stream: a name for the file", [200]),
]
HISTORY = [
    query("key", str, "As a JSON list; where there is one key column, its bare value. Not needed where there is none"),
    limit(MAX_VERSIONS, 100),
    query("before", {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}, "Versions of earlier batches than this"),
]
