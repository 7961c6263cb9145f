"""Data of which a restricted caller sees a part, and the paths at which it could see the rest.

What is outside of the key scope of states has `covert` in every name, key, value and message; what is outside of the
key prefix has `farshop` as well.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from urllib.parse import quote

import psycopg
from django.apps import apps
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.http import HttpResponseBase
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils.timezone import now

from tests.state_backends.feed import Feed
from tests.webapp.api.saved_queries.published import published
from tidegauge.state_backends import Count, StateSpec
from tidegauge.state_backends.dead_letters.letters import DeadLetter, write_dead_letters
from tidegauge.state_backends.ledger import driver_status
from tidegauge.state_backends.schema import former
from tidegauge.state_backends.schema.inputs import record_inputs
from tidegauge.state_backends.synchronizer.membership import Membership
from tidegauge.webapp.accounts.services import create_api_key
from tidegauge.webapp.catalog import readers
from tidegauge.webapp.catalog.models import MaintenanceRun
from tidegauge.webapp.console.boards.models import Board
from tidegauge.webapp.console.saved_views.models import SavedView
from tidegauge.webapp.maintenance.operations import pause_pipeline
from tidegauge.webapp.notify.alerts.models import Alert, AlertRule

KEY = {"shop": "text", "item": "text"}
SEEN = StateSpec("seen_orders", key=KEY, measures={"n": Count()}, changelog=True)
BROKEN = StateSpec("seen_broken", key=KEY, measures={"n": Count()})
COVERT = StateSpec("covert_orders", key={"covert_number": "bigint"}, measures={"covert_n": Count()}, changelog=True)
OTHER = StateSpec("covert_other", key={"covert_page": "bigint"}, measures={"covert_n": Count()})

INPUTS = {
    SEEN.name: {"sources": ["covert_source"], "states": [COVERT.name], "lookups": [OTHER.name]},
    COVERT.name: {"sources": ["covert_source"], "states": [SEEN.name], "lookups": []},
}

STATES = {"states": [SEEN.name, BROKEN.name]}
PREFIX = {"key_prefix": ["near"]}
# The key scope, and the words of what is outside of it.
SCOPES = [(STATES, ["covert"]), (PREFIX, ["covert", "farshop"])]

STATE_NAMES = ["seen_orders", "seen_broken", "covert_orders", "covert_other", "was_covert"]
NAMES = [*STATE_NAMES, "seen_pipeline", "covert_pipeline"]
QUERY_NAMES = ["seen_query", "covert_query"]
VIEW_IDS = ["seen_view", "seen_private", "covert_view"]
BOARD_IDS = ["seen_board", "covert_board", "seen_farshop"]
QUERIES = ["", "?limit=3", '?key=["near","a"]', '?key=["farshop","b"]', "?prefix=farshop", "?state=covert_orders"]
QUERIES += ["?measures=nothing", "?order_by=nothing", "?format=csv&measures=nothing", "?format=csv"]


@dataclass(frozen=True)
class Answer:
    """path: as requested, with its query."""

    path: str
    status: int
    text: str

    def leaks(self, words: Iterable[str]) -> list[str]:
        """Return the words that it has, besides those that it repeats from its path."""
        text = self.text.lower()
        for name in [*NAMES, *QUERY_NAMES, *VIEW_IDS, *BOARD_IDS, "farshop"]:
            if name in self.path:
                text = text.replace(name, "")
        return [word for word in words if re.search(rf"(?<![a-z]){word}(?![a-z])|{word}_", text)]


@contextmanager
def two_pipelines() -> Iterator[psycopg.Connection]:
    """Two committed pipelines with states, batches, runs, failures, findings; Baseline deletes them after the test."""
    readers.clear_cache()
    with readers.own_connection() as conn:
        try:
            seen = Feed(conn, [SEEN, BROKEN, COVERT], pipeline="seen_pipeline")
            orders = [{"shop": "near", "item": "a", "n": 1}, {"shop": "farshop", "item": "b", "n": 2}]
            covert = [{"covert_number": 7, "covert_n": 3}]
            seen.run(orders, orders, covert)
            _commit_with_figures(seen, orders, covert)
            Feed(conn, [OTHER], pipeline="covert_pipeline").run([{"covert_page": 7, "covert_n": 3}])
            record_inputs(conn, INPUTS)
            _saved_queries()
            _saved_views()
            _boards()
            _troubles(conn)
            yield conn
        finally:
            conn.execute("SELECT pg_advisory_unlock_all()")
            readers.clear_cache()


def _commit_with_figures(feed: Feed, orders: list[dict], covert: list[dict]) -> None:
    batch = feed.begin(feed.next_batch_id())
    assert batch is not None
    for spec, rows in ((SEEN, orders), (BROKEN, orders), (COVERT, covert)):
        feed.apply(batch, spec, rows)
    names = [SEEN.name, BROKEN.name, COVERT.name]
    with feed.conn.transaction():
        letters = [DeadLetter("covert_file", "covert_line", "covert_reason")]
        write_dead_letters(feed.conn, batch, letters)
    feed.ledger.commit(
        batch,
        rows_in=5,
        keys_written=dict.fromkeys(names, 2),
        dead_letters=1,
        tasks={name: {"tasks": 1, "largest": 2} for name in names},
    )


def _saved_queries() -> None:
    seen = {"state": SEEN.name, "keys": [["near", "a"]]}
    covert = {"state": COVERT.name, "keys": [[7]]}
    for name, reads in zip(QUERY_NAMES, [[seen], [seen, covert]], strict=True):
        published(name, {"reads": reads}, description=name)


def _saved_views() -> None:
    """One that others share, of a state of each side, and one that nobody else sees."""
    owner = User.objects.create_user("covert_member")
    shared = {"owner": owner, "is_shared": True}
    SavedView.objects.create(
        id="seen_view", name="farshop seen", state=SEEN.name, question={"prefix": "farshop"}, **shared
    )
    SavedView.objects.create(
        id="covert_view", name="covert_name", state=COVERT.name, question={"where": ["covert_n>1"]}, **shared
    )
    SavedView.objects.create(
        id="seen_private", name="covert_seen", state=SEEN.name, question={"prefix": "covert_key"}, owner=owner
    )


def _boards() -> None:
    """Shared boards: of views of both sides, of covert ones, and one that shows keys outside of the key prefix."""
    owner = User.objects.get(username="covert_member")
    views = {"seen_board": ["seen_view", "covert_view"], "covert_board": ["covert_view"], "seen_farshop": ["seen_view"]}
    for pk, shown in views.items():
        name = "farshop" if pk == "seen_farshop" else f"covert_name of {pk}"
        board = Board.objects.create(pk=pk, owner=owner, name=name, is_shared=True)
        for place, view in enumerate([*shown, "seen_private"]):
            board.tiles.create(view_id=view, place=place)


def _troubles(conn: psycopg.Connection) -> None:
    driver_status.report(conn, "seen_pipeline", "failed", "covert_orders: covert_key is out of range", failures=3)
    driver_status.report(conn, "covert_pipeline", "failed", "covert_key is out of range", failures=3)
    pause_pipeline(name="seen_pipeline", requested_by="covert_member")
    conn.execute("UPDATE tidegauge.batch SET metrics = %s::jsonb", ['{"duration_ms": {"covert_phase": 5}}'])
    conn.execute("UPDATE tidegauge.state SET warning = 'covert_warning'")
    conn.execute("UPDATE tidegauge.state SET finding = 'covert_finding' WHERE name = %s", [BROKEN.name])
    conn.execute(
        "INSERT INTO tidegauge.reprocess (pipeline, phase, swapped_at, accepted) "
        "VALUES ('seen_pipeline', 'settled', now(), 'lacks covert_file')"
    )
    renamed = former.Former("state", "was_covert", former.Fate.RENAMED, "covert_pipeline", 1, detail="covert_new")
    former.record(conn, renamed)
    for state in (SEEN.name, COVERT.name, OTHER.name):
        run = {"kind": "expiry", "state_id": state, "status": "failed", "requested_by": "covert_member"}
        MaintenanceRun.objects.create(error="covert_key cannot be read", **run)
    Membership(conn, "driver", "covert_pipeline").join()
    _alerts()
    create_api_key("covert_client", ["read"], states=["covert_orders"])


def _alerts() -> None:
    rule = AlertRule.objects.create(name="covert_rule", verdicts=["failed"], mail_to=["covert@example.com"])
    named = {"rule": rule, "verdict": "failed", "began_at": now(), "told": "failed"}
    Alert.objects.create(pipeline="seen_pipeline", reason="its driver has given up", **named)
    Alert.objects.create(pipeline="seen_pipeline", state=COVERT.name, reason="covert_reason", **named)
    Alert.objects.create(pipeline="covert_pipeline", reason="covert_reason", **named)


def paths() -> list[str]:
    """Return the path of each URL that is served, with every name and number as its parameters."""
    runs = [str(run) for run in MaintenanceRun.objects.values_list("id", flat=True)]
    return sorted({path for route in _routes(get_resolver(), "/") for path in _filled(route, runs)})


def _routes(resolver: URLResolver, start: str) -> Iterator[str]:
    for each in resolver.url_patterns:
        route = start + str(each.pattern).removeprefix("^").removesuffix("$").removesuffix("\\Z")
        if isinstance(each, URLPattern):
            yield route
        else:
            yield from _routes(each, route)


def _filled(route: str, runs: list[str]) -> Iterator[str]:
    parts = re.split(r"(<[^>]+>|\(\?P<.*?>.*?\))", route)
    objects = _objects(route)
    choices = [objects or _choices(part, runs) if part[:1] in ("<", "(") and part else [part] for part in parts]
    for chosen in product(*choices):
        path = quote("".join(chosen), safe="/")
        # With a query only for a state of each side, because the paths are many.
        is_asked = path == route or (chosen[1] in (SEEN.name, COVERT.name) and "/states/" in path)
        yield from (path + query for query in (QUERIES if is_asked and path.startswith("/api/v1/") else [""]))


def _objects(route: str) -> list[str]:
    """Return what is there of the model of an admin page, and an absent one; nothing if it is another route."""
    model = re.match(r"/admin/(\w+)/(\w+)/<", route)
    if model is None:
        return []
    return [*map(str, apps.get_model(*model.groups())._default_manager.values_list("pk", flat=True)), "nothing"]


def _choices(parameter: str, runs: list[str]) -> list[str]:
    if "content_type_id" in parameter:
        return [str(ContentType.objects.get_for_model(model).pk) for model in (SavedView, Board)]
    if "object_id" in parameter:
        return [*VIEW_IDS, *BOARD_IDS]
    kind = parameter.strip("<>").partition(":")[0]
    if kind in ("int", "number"):
        return [*runs, "1", "2"]
    if "board_id" in parameter or "link_id" in parameter:
        return BOARD_IDS
    names = [*VIEW_IDS] if "view_id" in parameter else [*NAMES, *QUERY_NAMES, "near"]
    return [*names, "farshop/b"] if kind == "path" else names


def text_of(response: HttpResponseBase) -> str:
    """Return headers and body."""
    body = b"".join(response) if response.streaming else response.content  # type: ignore[attr-defined, arg-type]
    return f"{dict(response.headers)}\n{body.decode(errors='replace')}"
