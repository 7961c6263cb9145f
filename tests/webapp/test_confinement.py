"""Restricted API keys and people: no answer to any GET has a name, key or message of what is outside."""

from collections.abc import Callable, Set

import pytest
from django.contrib.auth.models import Group, Permission
from django.test import Client

from tests.webapp.outside import COVERT, OTHER, SCOPES, SEEN, Answer, paths, text_of, two_pipelines
from tidegauge.webapp.accounts import authentication
from tidegauge.webapp.accounts.issuing import issue
from tidegauge.webapp.accounts.models import Restriction
from tidegauge.webapp.accounts.services import create_api_key
from tidegauge.webapp.catalog import readers
from tidegauge.webapp.catalog.visible import UNSEEN
from tidegauge.webapp.console.dashboard.search.pages import Result

pytestmark = pytest.mark.long

# At the address of a saved query.
VERSIONS = ["", "/openapi", "/versions/1", "/versions/1/openapi"]
OPENED = {f"/api/v1/saved-queries{path}" for path in ["", *(f"/seen_query{each}" for each in VERSIONS)]}
ELSEWHERE = "203.0.113.7"


@pytest.fixture
def world(transactional_db):
    authentication.clear_cache()
    with two_pipelines() as conn:
        yield conn


def answers(client: Client, asked: Callable[[str], bool] = lambda path: True) -> list[Answer]:
    """Return the answers of the paths that are asked for; without `asked` those of all."""
    return [Answer(path, *_asked(client, path)) for path in paths() if asked(path)]


def among(addresses: Set[str]) -> Callable[[str], bool]:
    """Ask for these addresses with each of their queries."""
    assert addresses <= {bare(path) for path in paths()}
    return lambda path: bare(path) in addresses


def bare(path: str) -> str:
    return path.partition("?")[0]


def _asked(client: Client, path: str) -> tuple[int, str]:
    response = client.get(path)
    return response.status_code, text_of(response)


def key_client(**options) -> Client:
    secret = create_api_key("restricted", ["read"], **options)[1]
    return Client(headers={"Authorization": f"Bearer {secret}"}, REMOTE_ADDR=ELSEWHERE)


@pytest.mark.parametrize(("scope", "words"), SCOPES)
def test_no_answer_has_what_is_outside(world, settings, scope, words):
    settings.TIDEGAUGE_READYZ_NAMES = False
    found = answers(key_client(**scope, rate=0))

    leaking = {answer.path: answer.text[-300:] for answer in found if answer.leaks(words)}

    assert leaking == {}
    assert not [answer.path for answer in found if answer.status >= 500 and "seen_broken" not in answer.path]


class TestAKeyForOneSavedQuery:
    def test_it_runs_that_query_and_nothing_else(self, world):
        found = answers(key_client(queries=["seen_query"], rate=0), is_api)

        opened = {answer.path for answer in found if answer.status < 400}
        assert opened == OPENED
        others = [answer for answer in found if bare(answer.path) not in opened]
        assert {answer.status for answer in others} == {403, 404, 405}
        leaking = {a.path: a.text[-300:] for a in others if a.leaks(["covert", "farshop", "seen_orders"])}
        assert leaking == {}
        assert [answer.path for answer in found if answer.leaks(["covert", "farshop"])] == []

    @pytest.mark.parametrize("method", ["post", "delete", "head"])
    def test_it_does_nothing_by_another_method(self, world, method):
        client = key_client(queries=["seen_query"], rate=0)
        api = {bare(path) for path in paths() if is_api(path)}

        done = {path for path in api if getattr(client, method)(path).status_code < 400}

        assert done == (OPENED if method == "head" else set())

    def test_it_learns_the_methods_of_no_other_calls(self, world):
        client = key_client(queries=["seen_query"], rate=0)

        told = {path for path in paths() if is_api(path) and client.options(path).status_code < 400}

        assert {bare(path).split("/")[3] for path in told} == {"saved-queries", "tokens"}

    def test_a_key_that_reads_more_makes_tokens_for_it(self, world):
        key, _ = create_api_key("backend", ["issue_tokens", "read"], queries=["covert_query", "seen_query"])
        token = issue(key, queries=["seen_query"]).text

        found = answers(Client(headers={"Authorization": f"Bearer {token}"}, REMOTE_ADDR=ELSEWHERE), is_api)

        assert {answer.path for answer in found if answer.status < 400} == OPENED

    def test_what_a_broken_query_lacks_is_not_told(self, world):
        world.execute("DELETE FROM tidegauge.maintenance_run")
        world.execute("UPDATE tidegauge.state SET name = 'covert_new' WHERE name = 'seen_orders'")
        readers.clear_cache()

        for path in ("seen_query", "seen_query/openapi"):
            response = key_client(queries=["seen_query"]).get(f"/api/v1/saved-queries/{path}")
            assert (response.status_code, "covert" in text_of(response)) == (410, False)


def is_api(path: str) -> bool:
    return path.startswith("/api/v1/")


def test_the_search_finds_what_a_key_without_a_scope_sees(world):
    listed = {"/api/v1/states", "/api/v1/pipelines", "/api/v1/maintenance", "/api/v1/pipelines/seen_pipeline/batches"}
    shown = listed | {"/api/v1/states/covert_orders/entries", "/api/v1/states/near"}

    found = answers(key_client(rate=0), among(shown))

    assert {bare(answer.path) for answer in found if answer.leaks(["covert"])} == shown


READS = [
    "",
    "/entries",
    "/entries?where=n>0&at_txid=1",
    "/entries?order_by=-n",
    "/export?format=csv",
    "/history?key=[7]",
    "/series?key=[7]",
    "/keys?key=[7]",
    "/keys?key=[7]&min_txid=1000000&wait_ms=1",
    "/keys?key=7",
    "/openapi",
]
LOOKUPS = [{}, {"at_txid": 1}, {"epoch": "another"}, {"min_txid": 1_000_000, "wait_ms": 1}]


def test_a_state_that_a_key_prefix_excludes_is_answered_as_one_that_does_not_exist(world):
    client = key_client(key_prefix=["near"], rate=0)
    # OTHER is not served either.
    world.execute("UPDATE tidegauge.state SET finding = 'covert_finding' WHERE name = %s", [OTHER.name])

    def answers_of(name: str) -> dict[str, tuple[int, str]]:
        asked = {path: client.get(f"/api/v1/states/{name}{path}") for path in READS}
        for more in LOOKUPS:
            alone, near = {"state": name, "keys": [[7]]}, {"state": SEEN.name, "keys": [["near", "a"]]}
            bodies = {"query": {"keys": [[7]], **more}, "queries": {"lookups": [near, alone], **more}}
            for kind, path in (("query", f"/api/v1/states/{name}/lookup"), ("queries", "/api/v1/lookup")):
                asked[f"{kind} {more}"] = client.post(path, bodies[kind], content_type="application/json")
        return {what: (answer.status_code, answer.json().get("detail", "")) for what, answer in asked.items()}

    absent = answers_of("nothing")

    assert set(absent.values()) == {(404, UNSEEN)}
    assert answers_of(COVERT.name) == absent
    assert answers_of(OTHER.name) == absent


@pytest.mark.parametrize(("of", "scope", "words"), [("user", *SCOPES[0]), ("group", *SCOPES[1])])
def test_no_page_has_what_is_outside_for_a_person(world, django_user_model, of, scope, words):
    found = answers(person(django_user_model, of, **scope))

    leaking = {answer.path: answer.text[-300:] for answer in found if answer.leaks(words)}

    assert leaking == {}
    assert not [answer.path for answer in found if answer.status >= 500 and "seen_broken" not in answer.path]
    opened = {answer.path for answer in found if answer.status == 200}
    assert {"/", "/maintenance", "/states/seen_orders/", "/pipelines/seen_pipeline/batches/2"} <= opened


def test_a_person_without_a_restriction_sees_all(world, django_user_model):
    Restriction.objects.create(user=django_user_model.objects.create_user("another"), states=["seen_orders"])

    shown = {"/", "/maintenance", "/pipelines/seen_pipeline/", "/states/covert_orders/", "/readyz"}
    shown |= {"/admin/states/state/"}

    found = answers(person(django_user_model, "nobody"), among(shown))

    assert {answer.path for answer in found if answer.leaks(["covert"])} == shown


SEARCHED = [
    "covert",
    "covert_orders",
    "covert_pipeline 1",
    "covert_orders 7",
    "farshop",
    "farshop,b",
    "7",
    "1",
    "2",
    "orders",
]
SEARCHED += ["e", "pause", "compact", "dead letters", "seen", "near"]


@pytest.mark.parametrize(("of", "scope", "words"), [("user", *SCOPES[0]), ("group", *SCOPES[1])])
def test_a_search_finds_nothing_outside_for_a_person(world, django_user_model, of, scope, words):
    client = person(django_user_model, of, **scope)

    found = [(asked, result) for asked in SEARCHED for result in searched(client, asked)]

    shown = [(asked, f"{result.title} {result.note} {result.address}") for asked, result in found]
    assert [each for each in shown if any(word in each[1] for word in words)] == []
    assert {asked for asked, _ in found} >= {"1", "2", "orders", "seen", "near"}


def test_a_search_finds_all_for_a_person_without_a_restriction(world, django_user_model):
    client = person(django_user_model, "nobody")

    assert all(searched(client, asked) for asked in SEARCHED)


def searched(client: Client, asked: str) -> list[Result]:
    return [result for group in client.get("/search", {"q": asked}).context["found"].groups for result in group.results]


def person(users, of, **scope) -> Client:
    """Return the client of a user who may see everything but for a restriction of the user or of a group."""
    user, group = users.objects.create_user("ada", is_staff=True), Group.objects.create(name="team")
    user.groups.add(group)
    user.user_permissions.set(Permission.objects.all())
    restricted = {"user": {"user": user}, "group": {"group": group}}
    if of in restricted:
        Restriction.objects.create(**restricted[of], **scope)
    client = Client(REMOTE_ADDR=ELSEWHERE)
    client.force_login(user)
    return client


@pytest.mark.parametrize(("scope", "words"), SCOPES)
def test_names_that_operators_show_to_all_come_without_messages(world, settings, scope, words):
    settings.TIDEGAUGE_READYZ_NAMES = True

    stale = key_client(**scope).get("/readyz").json()["pipelines"]

    assert {one["name"]: one["reason"] for one in stale} == dict.fromkeys(
        ["covert_pipeline", "seen_pipeline"], "its driver has given up"
    )
