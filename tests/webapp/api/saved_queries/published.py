"""Saved queries as tests publish them."""

from tidegauge.webapp.api.saved_queries.models import SavedQuery
from tidegauge.webapp.api.saved_queries.services import create_version, publish

TOP = {
    "parameters": {"origin": {"type": "text"}, "least": {"type": "bigint", "default": 0}},
    "reads": [
        {
            "state": "flights_by_carrier",
            "prefix": ["{origin}"],
            "where": ["flights>={least}"],
            "measures": ["flights"],
            "order_by": "-flights",
            "limit": 3,
        }
    ],
}
SHARE = {
    "parameters": {"carrier": {"type": "text", "many": True, "description": "IATA codes"}},
    "reads": [
        {"state": "totals", "keys": [[]]},
        {"state": "flights_by_carrier", "keys": [["EWR", "{carrier}"], ["JFK", "{carrier}"]], "combine": True},
        {"state": "flights_by_carrier", "where": ['carrier in ["{carrier}"]'], "measures": ["flights"]},
    ],
}


def published(name: str = "top", definition: dict = TOP, **options: str) -> SavedQuery:
    query = create_version(name, definition, **options)
    publish(query, by="ann")
    return query
