"""Saved queries over the API: what they answer, to whom, and what becomes of them when a state changes."""

from collections import Counter
from urllib.parse import urlencode

import pytest

from tests.webapp.api.saved_queries.published import SHARE, TOP, published
from tests.webapp.api.states import add_state
from tests.webapp.redis_views import redis_views
from tidegauge.state_backends import Catalog, Count, StateSpec
from tidegauge.webapp.accounts.audit.models import AuditEntry
from tidegauge.webapp.accounts.concurrency import SEARCHES
from tidegauge.webapp.accounts.models import ApiKey
from tidegauge.webapp.accounts.services import create_api_key
from tidegauge.webapp.api.saved_queries import run
from tidegauge.webapp.api.saved_queries.models import PublishedError
from tidegauge.webapp.api.saved_queries.parameters import DefinitionError
from tidegauge.webapp.api.saved_queries.services import StatusError, create_version, publish, withdraw
from tidegauge.webapp.catalog import readers
from tidegauge.webapp.core import pools


def asked(api, path="top", status=200, **parameters):
    response = api.ask("GET", f"/saved-queries/{path}?{urlencode(parameters, doseq=True)}")
    assert response.status_code == status, response.content
    return response.json()


def detail(*parts, **parameters):
    return asked(*parts, **parameters)["detail"]


class TestAnswers:
    def test_entries_are_those_of_its_range_filter_order_and_limit(self, filled, api):
        published()

        found = asked(api, origin="EWR", least=98)

        assert (found["query"], found["version"], found["txid"]) == ("top", 1, 2)
        (answer,) = found["answers"]
        assert [(entry["key"], entry["value"]) for entry in answer["entries"]] == [
            (["EWR", "C00"], {"flights": 1100}),
            (["EWR", "C01"], {"flights": 99}),
            (["EWR", "C02"], {"flights": 98}),
        ]

    def test_several_states_are_read_at_one_batch(self, filled, api):
        published("share", SHARE)

        totals, combined, entries = asked(api, "share", carrier=["C01", "C02"])["answers"]

        assert totals["results"][0]["value"]["flights"] == 6130
        assert (combined["combined"]["keys"], combined["combined"]["value"]["flights"]) == (4, 2 * (99 + 98))
        assert [entry["key"] for entry in entries["entries"]] == [
            ["EWR", "C01"], ["EWR", "C02"], ["JFK", "C01"], ["JFK", "C02"],
        ]  # fmt: skip

    def test_an_open_batch_does_not_show_and_an_earlier_one_can_be_asked_for(self, filled, api):
        published()
        filled.commit({("EWR", "C05"): 5_000})

        assert asked(api, origin="EWR", least=5_000)["answers"][0]["entries"][0]["key"] == ["EWR", "C05"]
        assert asked(api, origin="EWR", least=5_000, at_txid=2)["answers"][0]["entries"] == []
        assert asked(api, origin="EWR", at_txid=2)["txid"] == 2
        assert "batch 9 is not committed" in detail(api, status=409, origin="EWR", at_txid=9)

    def test_pages_of_one_read_are_followed_with_the_same_values(self, filled, api):
        published("all", {**TOP, "reads": [{**TOP["reads"][0], "order_by": "", "limit": 12}]})
        found, cursor = [], {}
        while True:
            (answer,) = asked(api, "all", origin="JFK", **cursor)["answers"]
            found += [entry["key"][1] for entry in answer["entries"]]
            if answer["next"] is None:
                break
            cursor = {"cursor": answer["next"]}

        assert found == [f"C{n:02}" for n in range(30)]
        assert "another query, or to other values" in detail(api, "all", status=400, origin="EWR", **cursor)

    def test_the_newest_published_version_answers_and_the_others_keep_their_addresses(self, filled, api):
        published()
        second = published(definition={"reads": [{"state": "totals", "keys": [[]]}]})
        create_version("top", TOP)

        assert asked(api)["version"] == 2
        assert asked(api, "top/versions/1", origin="EWR")["version"] == 1
        assert "version 3 of query 'top' does not exist" in detail(api, "top/versions/3", status=404)
        withdraw(second, by="ann")
        assert asked(api, origin="EWR")["version"] == 1
        assert "top version 2 was withdrawn" in detail(api, "top/versions/2", status=410)

    def test_a_known_answer_is_a_304(self, filled, api):
        published()
        etag = api.ask("GET", "/saved-queries/top?origin=EWR").headers["ETag"]

        again = api.ask("GET", "/saved-queries/top?origin=EWR", headers={"If-None-Match": etag})

        assert (again.status_code, again.content) == (304, b"")

    def test_a_state_in_redis_is_read_beside_one_in_a_table(self, connection, api):
        with redis_views(connection) as views:
            views.commit({f"page {n}": n for n in range(5)})
            reads = [
                {"state": views.name, "where": ["views>={least}"]},
                {"state": views.total.name, "keys": [[]]},
            ]
            published("views", {"parameters": {"least": {"type": "bigint"}}, "reads": reads})

            pages, total = asked(api, "views", least=3)["answers"]

            assert [entry["key"] for entry in pages["entries"]] == [["page 3"], ["page 4"]]
            assert total["results"][0]["status"] == "found"


class TestParameters:
    @pytest.mark.parametrize(
        ("parameters", "says"),
        [
            ({}, "query 'top': parameter 'origin' is required, a value of type text"),
            ({"origin": "EWR", "least": "many"}, "parameter 'least' must be bigint, got 'many'"),
            (
                {"origin": "EWR", "lest": 5},
                "unknown parameter 'lest'; there are at_time, at_txid, cursor, least, ",
            ),
            ({"origin": "EWR", "where": "flights>5"}, "unknown parameter 'where'"),
            ({"origin": ["EWR", "JFK"]}, "parameter 'origin' is given 2 times"),
            ({"origin": "EWR", "cursor": "x"}, "cursor is not one of this server"),
        ],
    )
    def test_a_wrong_one_is_a_400_that_names_it(self, filled, api, parameters, says):
        published()

        assert says in detail(api, status=400, **parameters)

    def test_keys_are_counted_before_they_are_made(self, filled, api, monkeypatch):
        many = {name: {"type": "text", "many": True} for name in ("origin", "carrier")}
        published("grid", {"parameters": many, "reads": [{**SHARE["reads"][1], "keys": [["{origin}", "{carrier}"]]}]})
        values = [str(n) for n in range(100)]
        assert asked(api, "grid", origin=values[:10], carrier=values)["answers"][0]["combined"]["missing"] == 1_000

        monkeypatch.delattr(run, "_composed")
        problem = asked(api, "grid", status=400, origin=values, carrier=values)

        assert (problem["code"], problem["max_keys"]) == ("too_many_keys", 1_000)
        assert problem["detail"].startswith("10000 keys are over the limit")

    @pytest.mark.parametrize("text", ["' OR '1'='1", '"', '"] or 1', "{least}", "%", "EWR'--", "[]", '["EWR"]'])
    def test_text_is_one_value_whatever_it_holds(self, filled, api, text):
        published()
        published("in", {"parameters": SHARE["parameters"], "reads": SHARE["reads"][2:]})

        assert asked(api, origin=text)["answers"][0]["entries"] == []
        assert asked(api, "in", carrier=[text])["answers"][0]["entries"] == []


class TestAccess:
    def test_an_api_key_sees_and_runs_queries_of_its_states_alone(self, filled, api):
        published()
        published("share", SHARE)
        confined = type(api)(create_api_key("some", ["read"], states=["flights_by_carrier"])[1])

        assert [query["name"] for query in confined.ask("GET", "/saved-queries").json()["saved_queries"]] == ["top"]
        assert asked(confined, origin="EWR")["version"] == 1
        assert detail(confined, "share", status=404, carrier="C01") == detail(confined, "none", status=404).replace(
            "'none'", "'share'"
        )
        assert detail(confined, "share/openapi", status=404)

    def test_an_api_key_of_some_keys_gets_no_others(self, filled, api):
        published()
        published("share", {"parameters": SHARE["parameters"], "reads": SHARE["reads"][1:]})
        published("all", {"reads": [{"state": "flights_by_carrier", "limit": 1000}]})
        confined = type(api)(create_api_key("jfk", ["read"], key_prefix=["JFK"])[1])

        entries = asked(confined, "all")["answers"][0]["entries"]
        assert {entry["key"][0] for entry in entries} == {"JFK"}
        assert "restricted to keys" in detail(confined, status=403, origin="EWR")
        assert "restricted to keys" in detail(confined, "share", status=403, carrier="C01")

    def test_a_query_of_a_state_whose_keys_cannot_have_the_prefix_is_unknown(self, filled, api):
        published()
        published("total", {"reads": [{"state": "totals", "keys": [[]]}]})
        confined = type(api)(create_api_key("jfk", ["read"], key_prefix=["JFK"])[1])

        assert [query["name"] for query in confined.ask("GET", "/saved-queries").json()["saved_queries"]] == ["top"]
        assert [asked(confined, path, status=404)["code"] for path in ("total", "total/openapi")] == (
            ["unknown_query", "unknown_query"]
        )

    def test_those_that_search_are_limited_as_searches(self, filled, api, settings, monkeypatch):
        published()
        published("total", {"reads": [{"state": "totals", "keys": [[]]}]})
        settings.TIDEGAUGE_SEARCHES_EACH = 1
        monkeypatch.setattr(SEARCHES, "_held", Counter({f"key {ApiKey.objects.get().pk}": 1}))

        assert asked(api, status=429, origin="EWR")["code"] == "too_many_at_once"
        assert asked(api, "total")["version"] == 1

    def test_those_that_search_take_threads_of_searches_from_the_first_page_on(self, filled, api, monkeypatch):
        monkeypatch.setattr(pools, "_quick_queries", set())
        published("top")
        published("share", {"reads": [SHARE["reads"][0]]})
        asked = {"REQUEST_METHOD": "GET", "QUERY_STRING": ""}
        environs = [asked | {"PATH_INFO": f"/api/v1/saved-queries/{name}"} for name in ("top", "share")]

        assert [pools.pool_of(environ) for environ in environs] == ["searches", "searches"]
        api.ask("GET", "/saved-queries/top?origin=JFK")
        api.ask("GET", "/saved-queries/share")
        assert [pools.pool_of(environ) for environ in environs] == ["searches", "lookups"]

    def test_a_query_needs_an_api_key(self, filled, api):
        published()

        assert type(api)().ask("GET", "/saved-queries/top?origin=EWR").status_code == 401


class TestList:
    def test_it_has_the_newest_published_version_of_each(self, filled, api):
        published(description="The busiest carriers of an airport")
        create_version("draft", TOP)

        (listed,) = api.ask("GET", "/saved-queries").json()["saved_queries"]

        assert (listed["name"], listed["version"], listed["states"]) == ("top", 1, ["flights_by_carrier"])
        assert [(each["name"], each["type"], each["required"], each["many"]) for each in listed["parameters"]] == [
            ("least", "bigint", False, False),
            ("origin", "text", True, False),
        ]
        assert (listed["url"], listed["openapi"]) == ("/api/v1/saved-queries/top", "/api/v1/saved-queries/top/openapi")


class TestChanges:
    @pytest.fixture
    def spare(self, filled):
        spec = StateSpec("spare", key={"k": "text"}, measures={"n": Count(), "m": Count()})
        add_state(filled.conn, spec, {("a",): {"n": 1, "m": 2}})
        return spec

    def test_a_state_that_is_gone_is_named(self, filled, spare, api):
        published("spare", {"reads": [{"state": "spare", "keys": [["a"]], "measures": ["m"]}]})
        filled.conn.execute("UPDATE tidegauge.state SET name = 'other' WHERE name = 'spare'")
        readers.clear_cache()

        assert "spare version 1 cannot be answered any more: reads[0]: state 'spare'" in detail(
            api, "spare", status=410
        )
        assert "state 'spare'" in detail(api, "spare/openapi", status=410)

    def test_a_measure_that_is_gone_is_named(self, filled, spare, api):
        published("spare", {"reads": [{"state": "spare", "where": ["m>0"], "limit": 5}]})
        filled.conn.execute(
            "UPDATE tidegauge.state SET definition = jsonb_set(definition, '{measure_order}', '[\"n\"]') "
            "#- '{measures,m}' WHERE name = 'spare'"
        )
        readers.clear_cache()

        assert "no column 'm' that can be compared; there are k, n" in detail(api, "spare", status=410)

    def test_what_cannot_be_answered_is_not_published(self, filled):
        for reads, says in [
            ([{"state": "none"}], "state 'none'"),
            ([{"state": "totals", "keys": [["a"]]}], "expected 0 parts"),
            ([{"state": "flights_by_carrier", "measures": ["x"]}], "no measure 'x'"),
            ([{"state": "flights_by_carrier", "order_by": "x"}], "no measure 'x'"),
        ]:
            with pytest.raises(DefinitionError, match=says):
                publish(create_version("wrong", {"reads": reads}), by="ann")
        with pytest.raises(DefinitionError, match="flights is bigint"):
            published("wrong", {**TOP, "parameters": {**TOP["parameters"], "least": {"type": "text"}}})

    def test_states_of_two_pipelines_are_not_published_together(self, filled):
        Catalog(filled.conn).register_pipeline("p2", spout="opaque")
        spec = StateSpec("elsewhere", key={"k": "text"}, measures={"n": Count()})
        add_state(filled.conn, spec, {}, pipeline="p2")

        with pytest.raises(DefinitionError, match="pipelines have no batch in common"):
            published("both", {"reads": [{"state": "elsewhere"}, {"state": "totals", "keys": [[]]}]})


class TestVersions:
    def test_a_published_version_cannot_be_changed(self, filled):
        query = published()
        query.description = "another"

        with pytest.raises(PublishedError, match="top version 1 is published and cannot be changed"):
            query.save()

    def test_each_act_needs_its_status(self, filled):
        query = published()

        with pytest.raises(StatusError, match="is published already"):
            publish(query, by="ann")
        withdraw(query, by="ann")
        with pytest.raises(StatusError, match="is withdrawn; only a published version"):
            withdraw(query, by="ann")

    def test_acts_are_in_the_audit_log(self, filled):
        withdraw(published(), by="bob")

        entries = AuditEntry.objects.filter(target="query top").order_by("id")
        assert [(entry.action, entry.actor, entry.detail["version"]) for entry in entries] == [
            ("query.publish", "ann", 1),
            ("query.withdraw", "bob", 1),
        ]
