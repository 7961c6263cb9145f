"""The places of the console: in the rail, and on a phone in the bar at the bottom."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest
from django.urls import reverse

from tidegauge.webapp.accounts.permissions import VIEW_KEYS, key_scope
from tidegauge.webapp.console.sql.run import is_offered


@dataclass(frozen=True)
class Place:
    """within: the routes of the pages below it. icon: a path, 16 by 16. is_tab: whether the bar of a phone has it."""

    route: str
    label: str
    icon: str
    within: frozenset[str] = frozenset()
    is_tab: bool = False

    @property
    def address(self) -> str:
        return reverse(self.route)


@dataclass(frozen=True)
class ShownPlace:
    """current: the value of `aria-current`; empty on pages of another place."""

    place: Place
    current: str


@dataclass(frozen=True)
class Navigation:
    """groups: the label of each, which may be empty, and its places."""

    groups: Sequence[tuple[str, Sequence[ShownPlace]]]

    @property
    def tabs(self) -> list[ShownPlace]:
        return [shown for _, places in self.groups for shown in places if shown.place.is_tab]

    @property
    def is_in_more(self) -> bool:
        return any(shown.current for shown in self.more)

    @property
    def more(self) -> list[ShownPlace]:
        return [shown for _, places in self.groups for shown in places if not shown.place.is_tab]


def _within(*names: str) -> frozenset[str]:
    return frozenset(f"dashboard:{name}" for name in names)


HEALTH = Place("dashboard:index", "Health", "M1.5 8.5h3l2-5 3 9.5 2-4.5h3", is_tab=True)
PIPELINES = Place(
    "dashboard:pipelines", "Pipelines", "M1.5 4H5l6 8h3.5M1.5 12H5M11 4h3.5",
    _within("pipeline", "pipeline_states", "pipeline_api", "acts", "batches", "batch", "dead_letters", "replay"),
)  # fmt: skip
STATES = Place(
    "dashboard:states", "States", "M2 3h12v10H2zM2 6.5h12M6.5 6.5V13",
    _within("state", "schema", "state_api", "upkeep", "key", "lookup", "compact", "expire", "audit"), is_tab=True,
)  # fmt: skip
LINEAGE = Place("dashboard:lineage", "Lineage", "M1.5 6h4v4h-4zM10.5 2h4v4h-4zM10.5 10h4v4h-4zM5.5 8H8M10.5 4H8v8h2.5")
EXPLORE = Place(
    "dashboard:explore_states", "Explore", "M2 2v12h12M4.5 10.5l3-4 2.5 2L14 4",
    _within("explore", "compare", "save_view", "save_comparison"), is_tab=True,
)  # fmt: skip
BOARDS = Place(
    "dashboard:boards", "Boards", "M2 2h5v7H2zM9 2h5v4H9zM9 8h5v6H9zM2 11h5v3H2z",
    _within("board", "create_board", "edit_board", "delete_board", "share_board"),
)  # fmt: skip
VIEWS = Place(
    "dashboard:views", "Saved views", "M4 2h8v12l-4-3-4 3z", _within("view", "edit_view", "delete_view")
)  # fmt: skip
SQL = Place("dashboard:sql", "SQL", "M2.5 4.5l3.5 3.5-3.5 3.5M8 12h5.5")
ALERTS = Place(
    "dashboard:alerts", "Alerts", "M3 11.5c1-1 1.5-2 1.5-5a3.5 3.5 0 0 1 7 0c0 3 .5 4 1.5 5zM6.5 14h3",
    _within("add_rule"), is_tab=True,
)  # fmt: skip
MAINTENANCE = Place(
    "dashboard:maintenance", "Maintenance", "M2 4.5h6m3 0h3M9.5 3v3M2 11.5h3m3 0h6M6.5 10v3", _within("run")
)
KEYS = Place(
    "dashboard:keys", "API keys",
    "M8 8a2.75 2.75 0 1 1-5.5 0A2.75 2.75 0 0 1 8 8zM8 8h6v2.5M11.5 8v2", _within("create_key", "revoke_key"),
)  # fmt: skip
DOCS = Place("docs", "API docs", "M5 4 1.5 8 5 12M11 4l3.5 4-3.5 4M9 3 7 13", frozenset({"docs_call"}))
ADMIN = Place("admin:index", "Admin", "M8 1.5l5.5 2v4c0 3.5-2.3 5.7-5.5 7-3.2-1.3-5.5-3.5-5.5-7v-4z")


def navigation(request: HttpRequest | None, user: Any) -> Navigation | None:
    """Return the places that a reader may open; None before sign-in.

    user: None if it is unknown, because the database is unavailable. Then places that need a permission are left out.
    """
    if user is not None and not user.is_authenticated:
        return None
    is_whole = user is not None and request is not None and key_scope(request).is_unrestricted
    keys = [KEYS] if is_whole and user.has_perm(VIEW_KEYS) else []
    ask_sql = [SQL] if is_whole and request is not None and is_offered(request) else []
    admin = [ADMIN] if is_whole and user.is_staff else []
    match = request.resolver_match if request is not None else None
    here, of_admin = (match.view_name, match.app_name == "admin") if match else ("", False)

    def shown(places: Iterable[Place]) -> list[ShownPlace]:
        return [
            ShownPlace(
                place,
                "page"
                if here == place.route
                else "true"
                if here in place.within or (of_admin and place is ADMIN)
                else "",
            )
            for place in places
        ]

    groups = [
        ("", shown([HEALTH, PIPELINES, STATES, LINEAGE])),
        ("Ask", shown([EXPLORE, BOARDS, VIEWS, *ask_sql])),
        ("Run", shown([ALERTS, MAINTENANCE, *keys, DOCS])),
        ("", shown(admin)),
    ]
    return Navigation([(label, places) for label, places in groups if places])
