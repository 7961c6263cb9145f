"""Keys beside each other: at one batch or at two, and over time."""

import json
from datetime import timedelta
from html import unescape

import pytest
from django.contrib.auth.models import Group

from tests.webapp.console.dashboard.page_text import text
from tests.webapp.console.dashboard.test_api_panel import run
from tests.webapp.redis_views import redis_views
from tidegauge.webapp.accounts.models import Restriction

COMPARE = "/states/flights_by_carrier/compare"
TWO = {"key": ['["EWR", "C00"]', '["JFK", "C00"]']}


def test_keys_are_beside_each_other(filled, reader):
    page = text(reader.get(COMPARE, TWO))

    assert "Measure EWR · C00 JFK · C00 flights 1,100 100 mean_delay 12.50 12.50 max_delay 1,040 140" in page
    assert "Batch 2" in page


def test_two_batches_show_what_has_changed(filled, reader):
    page = text(reader.get(COMPARE, TWO | {"than": "1", "measures": "flights"}))

    assert "flights 1,100 before 100, +1,000 (+1,000.0 %) 100 before 100, unchanged" in page
    assert "mean_delay 12.50" not in page
    assert "; before: batch 1" in page


def test_a_key_that_came_later_has_no_change(filled, reader):
    filled.commit({("LGA", "C00"): 5})

    page = text(reader.get(COMPARE, {"key": "LGA,C00", "than": "2", "measures": "flights"}))

    assert "flights 5 before —" in page


def test_the_api_answers_the_same_question(filled, admin_client):
    page = admin_client.get(COMPARE, TWO | {"as_of": "1", "measures": "flights"})

    assert run(page) == (
        "http://testserver/api/v1/states/flights_by_carrier/lookup",
        '{"keys": [["EWR", "C00"], ["JFK", "C00"]], "measures": ["flights"], "at_txid": 1}',
    )


def test_a_chart_for_each_column_has_a_line_for_each_key(filled, reader):
    filled.conn.execute(
        "UPDATE tidegauge_changelog.flights_by_carrier SET updated_at = updated_at - interval '10 min' WHERE txid = 1"
    )
    page = reader.get(COMPARE, TWO | {"measures": "flights"}).content.decode()

    assert unescape(page).count('data-lines="[["0 flights","EWR · C00"],["1 flights","JFK · C00"]]"') == 1
    found = reader.get(f"{COMPARE}/series", TWO | {"measures": "flights", "last": "3600"}).json()
    # Both at the beginning, after the second batch, which wrote one of them, and now.
    assert found["series"]["0 flights"][0] == found["series"]["1 flights"][0] == 100
    assert found["series"]["0 flights"][-1] == 1_100
    assert found["series"]["1 flights"][-1] == 100
    assert found["times"] == sorted(found["times"])
    assert {len(values) for values in found["series"].values()} == {len(found["times"])}


def test_keys_come_from_the_explorer_or_are_typed(filled, reader):
    explorer = reader.get("/states/flights_by_carrier/explore").content.decode()

    assert 'name="key" form="compare" value="[&quot;EWR&quot;,&quot;C00&quot;]"' in explorer
    assert "EWR · C00 JFK · C00" in text(reader.get(COMPARE, {"key": ['["EWR","C00"]', "JFK, C00", ""]}))
    assert "Add keys, or tick some in the explorer" in text(reader.get(COMPARE))


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"key": "EWR"}, "'EWR': "),
        ({"key": [f"EWR,C{n}" for n in range(8)]}, "8 keys are more than the 7 that can be compared; leave some out"),
        (TWO | {"than": "7"}, "batch 7"),
        (TWO | {"than": "soon"}, "'soon' is neither a batch number nor a time"),
    ],
)
def test_what_cannot_be_compared_is_said(filled, reader, asked, said):
    assert said in text(reader.get(COMPARE, asked))


def test_the_series_of_keys_outside_are_not_told_from_those_of_no_state(filled, reader, django_user_model):
    group = Group.objects.create(name="of JFK")
    Restriction.objects.create(group=group, key_prefix=["JFK"])
    django_user_model.objects.get(username="reader").groups.add(group)

    outside = reader.get(f"{COMPARE}/series", {"key": '["EWR","C00"]'})

    assert outside.status_code == 404
    assert reader.get(f"{COMPARE}/series", {"key": '["JFK","C00"]'}).status_code == 200
    assert reader.get("/states/nothing/compare/series", {"key": "a"}).status_code == 404
    assert "1,100" not in text(reader.get(COMPARE, {"key": '["EWR","C00"]'}))


def test_a_wrong_range_of_a_series_is_a_400(filled, reader):
    answer = reader.get(f"{COMPARE}/series", TWO | {"last": "soon"})

    assert (answer.status_code, answer.json()["detail"][:21]) == (400, "last must be a number")


def test_a_range_of_time_keeps_the_keys(filled, reader):
    page = unescape(reader.get(COMPARE, TWO | {"range": "24h", "measures": "flights"}).content.decode())

    assert page.count('<input type="hidden" name="key"') == 2
    link = page.split('id="range-7d" href="')[1].split('"')[0]
    assert "range=7d" in link
    assert text(reader.get(link)).count("flights 1,100 100") == 1


def test_keys_of_another_store_are_compared(connection, reader):
    with redis_views(connection, changelog=True, ttl=timedelta(days=2)) as views:
        views.commit({"/home": 7, "/cart": 9})
        views.commit({"/home": 1})

        asked = {"key": ["/home", "/cart"], "than": "1", "measures": "views"}
        assert "views 8 before 7, +1 (+14.3 %) 9 before 9, unchanged" in text(
            reader.get(f"/states/{views.name}/compare", asked)
        )
        series = reader.get(f"/states/{views.name}/compare/series", asked).json()["series"]
        assert [values[-1] for values in series.values()] == [8, 9]
        assert json.dumps(series)
