"""The explorer of a state: its table, under an address of its own, and the request that answers the same."""

import json
import re
from html import unescape
from urllib.parse import unquote

from tests.webapp.api.states import add_state
from tests.webapp.console.dashboard.page_text import following, text
from tests.webapp.console.dashboard.test_api_panel import run
from tests.webapp.redis_views import redis_views
from tidegauge.state_backends import DistinctCount, Quantiles, StateSpec
from tidegauge.webapp.accounts.models import Restriction

EXPLORE = "/states/flights_by_carrier/explore"
API = "http://testserver/api/v1/states/flights_by_carrier"


def rows(response) -> list[str]:
    """The keys of the table, as JSON."""
    return [unquote(key) for key in re.findall(r'<tr id="row-([^"]*)"', response.content.decode())]


def headings(response) -> list[str]:
    found = re.findall(r'<th scope="col".*?</th>', response.content.decode(), re.DOTALL)
    return [" ".join(unescape(re.sub(r"<[^>]+>", "", heading)).split()) for heading in found]


def test_it_lists_keys_with_all_columns_and_is_linked_from_the_state(filled, reader):
    page = reader.get(EXPLORE)

    assert headings(page) == ["origin · carrier", "flights", "mean_delay", "max_delay"]
    assert rows(page)[:2] == ['["EWR","C00"]', '["EWR","C01"]']
    assert len(rows(page)) == 25
    assert "EWR · C00 1,100 12.50 1,040" in text(page)
    assert f'<a href="{EXPLORE}">Explore</a>'.encode() in reader.get("/states/flights_by_carrier/").content


def test_conditions_prefix_order_and_columns_are_in_the_address(filled, reader):
    asked = {"where": ["flights>=90", "carrier!=C00"], "prefix": "JFK", "order": "-flights", "measures": "max_delay"}

    page = reader.get(EXPLORE, asked)

    # The column that sorts is shown, too.
    assert headings(page) == ["origin · carrier", "max_delay", "flights"]
    assert rows(page) == [f'["JFK","C{n:02}"]' for n in range(1, 11)]
    assert 'aria-sort="descending"' in page.content.decode()


def test_the_api_answers_the_same_question(filled, admin_client):
    asked = {
        "where": ["flights>=90", "carrier!=C00"],
        "prefix": "JFK",
        "order": "-flights",
        "limit": "100",
        "as_of": "1",
    }

    page = admin_client.get(EXPLORE, asked | {"measures": ["flights", "max_delay"]})

    address, body = run(page)
    assert (body, unquote(address.replace("+", " "))) == (
        None,
        f'{API}/entries?prefix=["JFK"]&where=flights>=90&where=carrier!=C00&measures=flights,max_delay'
        "&order_by=-flights&at_txid=1&limit=100",
    )
    found = admin_client.get(address.removeprefix("http://testserver")).json()["entries"]
    assert [f'["{origin}","{carrier}"]' for origin, carrier in (entry["key"] for entry in found)] == rows(page)
    assert list(found[0]["value"]) == ["flights", "max_delay"]


def test_a_page_goes_on_where_the_one_before_ended(filled, reader):
    asked = {"order": "-mean_delay", "where": "flights>1"}
    first = reader.get(EXPLORE, asked)

    second = reader.get(following(first))
    third = reader.get(following(second))

    assert sorted(rows(first) + rows(second) + rows(third)) == sorted(rows(reader.get(EXPLORE, {"limit": "100"})))
    assert "51–60" in text(third)  # noqa: RUF001
    assert following(third) is None


def test_a_time_names_the_newest_batch_of_then(filled, reader):
    filled.conn.execute("UPDATE tidegauge.batch SET batch_time = '2026-11-01T10:00Z' WHERE txid = 1")

    assert "EWR · C00 100 12.50 140" in text(reader.get(EXPLORE, {"as_of": "2026-11-01T12:00"}))
    assert "EWR · C00 100 12.50 140" in text(reader.get(EXPLORE, {"as_of": "1"}))
    earlier = text(reader.get(EXPLORE, {"as_of": "2026-11-01T09:00"}))
    assert "No batch at 2026-11-01 09:00:00 UTC or earlier is known; give a later time." in earlier
    assert "'yesterday' is neither a batch number nor a time" in text(reader.get(EXPLORE, {"as_of": "yesterday"}))


def test_what_cannot_be_asked_is_said(filled, reader):
    assert "no column 'nothing'" in text(reader.get(EXPLORE, {"where": "nothing>1"}))
    assert "is not a condition such as flights>1000" in text(reader.get(EXPLORE, {"where": "flights"}))
    assert "No keys match the filter." in text(reader.get(EXPLORE, {"where": "flights>100000"}))


def test_a_state_without_key_columns_has_one_row(filled, reader):
    page = reader.get("/states/totals/explore")

    assert rows(page) == ["[]"]
    assert "all 6,130" in text(page)


def test_quantiles_have_a_column_each_and_distinct_counts_their_bounds(filled, reader):
    spec = StateSpec(
        "sketched", key={"page": "text"}, measures={"ms": Quantiles("ms", (0.5, 0.99)), "users": DistinctCount("user")}
    )
    value = {"ms": {"0.5": 12.0, "0.99": 40.5}, "ms_sketch": None, "ms_type": None}
    value |= {"users": 10_000, "users_sketch": None, "users_type": None}
    add_state(filled.conn, spec, {("/home",): value, ("/cart",): value | {"users": 7}})

    page = reader.get("/states/sketched/explore")

    assert headings(page) == ["page", "ms p50", "ms p99", "users"]
    assert "/cart 12 40.50 7 /home 12 40.50 ≈ 10,000 9,685–10,325" in text(page)  # noqa: RUF001


def test_a_refresh_asks_the_same_question(filled, reader):
    page = reader.get(EXPLORE, {"where": ["flights>1", "flights<99"], "limit": "100"})

    again = unescape(re.search(r"data-query=\"([^\"]*)\"", page.content.decode())[1])
    assert '"where":["flights>1","flights<99"]' in again
    assert '"limit":100' in again


def test_rows_of_another_store_are_listed(connection, reader):
    with redis_views(connection) as views:
        views.commit({"/home": 7, "/cart": 9})

        assert rows(reader.get(f"/states/{views.name}/explore", {"order": "-views"})) == ['["/cart"]', '["/home"]']


def test_keys_are_grouped_by_a_part_with_the_means_of_all_their_events(filled, admin_client):
    page = admin_client.get(EXPLORE, {"group": "origin", "order": "-flights", "where": "carrier != C01"})

    assert headings(page) == ["origin", "keys", "flights", "mean_delay", "max_delay"]
    assert "EWR 29 3,466 12.50 1,040 JFK 29 2,466 12.50 140" in text(page)
    address, _ = run(page)
    asked = "by=origin&where=carrier+%21%3D+C01&order_by=-flights&limit=25"
    assert address == f"{API}/groups?{asked}"
    found = admin_client.get(address.removeprefix("http://testserver")).json()
    assert [(group["key"], group["keys"], group["value"]["flights"]) for group in found["groups"]] == [
        (["EWR"], 29, 3_466),
        (["JFK"], 29, 2_466),
    ]


def test_a_group_leads_to_its_keys(filled, reader):
    page = unescape(reader.get(EXPLORE, {"group": "origin", "where": "flights>98"}).content.decode())

    address = page.split('<tr id="row-')[2].split('href="')[1].split('"')[0]

    assert rows(reader.get(address)) == ['["JFK","C00"]', '["JFK","C01"]']


def test_a_state_of_time_is_grouped_by_it(filled, reader):
    page = reader.get("/states/flights_by_hour/explore", {"group": "hour"})

    assert "2013-01-01 11:00Z 1 1 2013-01-01 10:00Z 2 2" in text(page)


class TestByTime:
    """A state whose keys have a time: `flights_by_hour`, by hour and origin."""

    EXPLORE = "/states/flights_by_hour/explore"

    def series(self, client, address=EXPLORE, **asked):
        page = client.get(address, asked).content.decode()
        return client.get(unescape(re.search(r'data-series-url="([^"]*)"', page)[1]))

    def test_the_values_of_all_keys_of_a_time_are_folded(self, filled, reader):
        filled.commit({("EWR", "C00"): 1, ("JFK", "C00"): 1})
        filled.commit({("EWR", "C00"): 1})

        found = self.series(reader).json()

        assert found["series"]["flights"][-2:] == [2, 1]
        first, second = found["times"][-2:]
        assert (second - first, found["step_seconds"]) == (3_600, 3_600)

    def test_conditions_prefix_and_batch_of_the_question_hold_for_the_chart(self, filled, reader):
        filled.commit({("EWR", "C00"): 1, ("JFK", "C00"): 1})

        assert self.series(reader, where="origin=EWR").json()["series"]["flights"][-1] == 1
        assert [len(self.series(reader, as_of=batch).json()["times"]) for batch in ("1", "2", "")] == [1, 2, 3]

    def test_other_groups_and_states_without_a_time_have_no_chart(self, filled, reader):
        assert b"data-series-url" not in reader.get(self.EXPLORE, {"group": "origin"}).content
        assert b"data-series-url" not in reader.get(EXPLORE).content
        assert reader.get(f"{EXPLORE}/series").status_code == 400

    def test_grouped_by_the_time_alone_the_page_has_the_series(self, filled, reader):
        filled.commit({("EWR", "C00"): 1, ("JFK", "C00"): 1})
        for more in ({}, {"order": "-flights"}, {"where": "origin=EWR"}):
            asked = {"group": "hour"} | more
            page = reader.get(self.EXPLORE, asked)

            assert json.loads(page.context["series_answer"]) == self.series(reader, **asked).json()

    def test_a_refresh_has_it_only_if_it_is_time(self, filled, reader):
        page = reader.get(self.EXPLORE, {"group": "hour"})
        poll = {"group": "hour", "drawn": json.loads(page.context["poll"])["drawn"]}

        assert reader.get(self.EXPLORE, poll).context["series_answer"] is None
        assert reader.get(self.EXPLORE, poll | {"drawn": "1"}).context["series_answer"]

    def test_its_table_has_no_more_rows_than_asked_for(self, filled, reader, monkeypatch):
        monkeypatch.setattr("tidegauge.webapp.console.dashboard.explorer.question.ROWS", (1, 100))

        page = reader.get(self.EXPLORE, {"group": "hour", "limit": "1"})

        assert (len(page.context["table"].rows), page.context["table"].complete) == (1, False)
        assert len(json.loads(page.context["series_answer"])["times"]) == 2

    def test_of_more_keys_than_may_be_folded_the_newest_times_are_drawn(self, filled, reader, settings):
        filled.commit({("EWR", "C00"): 1, ("JFK", "C00"): 1})
        all_times = self.series(reader).json()["times"]
        settings.TIDEGAUGE_GROUP_MAX_KEYS = 2

        for asked in ({}, {"split": "origin"}):
            found = self.series(reader, **asked).json()

            assert found["times"] == all_times[-len(found["times"]) :]
            assert len(found["times"]) < len(all_times)

    def test_too_many_keys_of_one_time_are_refused_with_the_reason(self, filled, reader, settings):
        filled.commit({("EWR", "C00"): 1, ("JFK", "C00"): 1})
        settings.TIDEGAUGE_GROUP_MAX_KEYS = 1

        refused = self.series(reader)

        assert (refused.status_code, "this one has over 1;" in refused.json()["detail"]) == (400, True)

    def test_a_restricted_reader_sees_the_own_keys_alone(self, filled, reader, django_user_model):
        assert self.series(reader).status_code == 200
        Restriction.objects.create(user=django_user_model.objects.get(username="reader"), states=["totals"])

        assert reader.get(f"{self.EXPLORE}/series").status_code == 404
