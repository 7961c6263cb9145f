import json
import re
from datetime import timedelta
from urllib.parse import quote

import pytest
from django.test import Client

from tests.webapp.console.dashboard.page_text import text, with_steady_ages
from tests.webapp.redis_views import redis_views
from tidegauge.webapp.console.dashboard import keys as key_history

CARRIERS = "/states/flights_by_carrier"


def address(state: str, key: list) -> str:
    return f"/states/{state}/key?key={quote(json.dumps(key))}"


EWR = address("flights_by_carrier", ["EWR", "C00"])


class TestKeyPage:
    def test_it_shows_value_status_expiry_and_every_version_with_its_batch(self, filled, reader):
        response = reader.get(EWR)

        assert "EWR · C00 found expires in 399 days flights 1,100 mean_delay 12.50 max_delay 1,040 " in text(response)
        assert re.search(r" 2 [\d :-]+ UTC 1,100 12.50 1,040 1 [\d :-]+ UTC 100 12.50 140 ", text(response))
        assert b'<a href="/pipelines/flights/batches/2">2</a>' in response.content

    def test_the_request_is_that_of_the_one_key(self, filled, reader):
        page = text(reader.get(EWR))

        assert 'curl -fsSG "http://testserver/api/v1/states/flights_by_carrier/keys"' in page
        assert """--data-urlencode 'key=["EWR", "C00"]'""" in page
        assert "print(client.state('flights_by_carrier').get(('EWR', 'C00')))" in page

    def test_the_request_for_a_key_that_does_not_exist_is_a_lookup(self, filled, reader):
        page = text(reader.get(address("flights_by_carrier", ["ewr", "C00"])))

        assert 'curl -fsS "http://testserver/api/v1/states/flights_by_carrier/lookup"' in page
        assert """-d '{"keys": [["ewr", "C00"]]}'""" in page

    def test_an_unknown_key_is_missing(self, filled, reader):
        page = text(reader.get(address("flights_by_carrier", ["ewr", "C00"])))

        assert "ewr · C00 missing This key does not exist. Keys are case-sensitive." in page

    def test_a_key_that_never_existed_has_no_versions_that_compaction_removed(self, filled, reader):
        filled.conn.execute("UPDATE tidegauge.state SET oldest_txid = 2 WHERE name = 'flights_by_carrier'")

        page = text(reader.get(address("flights_by_carrier", ["ewr", "C00"])))

        assert "No version of this key is kept." in page
        assert "compaction" not in page

    def test_a_key_past_its_ttl_is_expired(self, filled, reader):
        filled.conn.execute(
            "UPDATE tidegauge_state.flights_by_carrier SET updated_at = updated_at - interval '2 years'"
        )

        page = text(reader.get(EWR))

        assert "EWR · C00 expired Not updated for 400 days." in page
        assert "expires in" not in page

    def test_values_of_the_open_batch_do_not_show(self, filled, reader):
        filled.open({("EWR", "C00"): 5})

        assert "flights 1,100 " in text(reader.get(EWR))

    def test_a_global_aggregate_has_a_page_of_its_own(self, filled, reader):
        page = text(reader.get(address("totals", [])))

        assert "totals found flights 6,130 Over time" in page
        assert "Without a changelog, a row keeps at most two versions." in page

    def test_versions_come_in_pages(self, filled, reader, monkeypatch):
        monkeypatch.setattr(key_history, "PAGE_VERSIONS", 2)
        for flights in (5, 6, 7):
            filled.commit({("EWR", "C00"): flights})

        newest = reader.get(EWR).content.decode()
        older = reader.get(f"{EWR}&before=4").content.decode()

        assert re.findall(r'<tr id="version-(\d)"', newest) == ["5", "4"]
        assert re.search(r'rel="next" href="[^"]*&amp;before=4"', newest)
        assert re.findall(r'<tr id="version-(\d)"', older) == ["3", "2"]

    def test_a_time_in_a_key_may_be_written_as_lookups_write_it(self, filled, reader):
        page = text(reader.get(address("flights_by_hour", ["2013-01-01T10:00:00Z", "EWR"])))

        assert "2013-01-01 10:00Z · EWR found flights 1 " in page

    @pytest.mark.parametrize(
        ("key", "reason"),
        [
            ('["EWR"]', '["EWR"] : expected 2 parts (origin, carrier), got 1'),
            ('["EWR", 7]', '["EWR", 7] : carrier must be text, got 7'),
            ("EWR", "EWR : expected a list of 2 parts as JSON, got 'EWR'"),
            ("null", "null : expected a list of 2 parts as JSON, got 'null'"),
            ("", "[] : expected 2 parts"),
            ('["a\\u0000", "b"]', "origin holds a NUL character"),
        ],
    )
    def test_an_invalid_key_is_explained(self, filled, reader, key, reason):
        response = reader.get(f"{CARRIERS}/key", {"key": key})

        assert response.status_code == 200
        assert reason in text(response)
        assert "A key is a JSON list with one part for each of origin (text), carrier (text)." in text(response)

    def test_a_key_in_the_address_is_escaped(self, filled, reader):
        response = reader.get(f"{CARRIERS}/key", {"key": "<script>"})

        assert b"<script>" not in response.content
        assert "<script> : expected a list of 2 parts" in text(response)

    def test_an_unknown_state_lists_the_existing_ones(self, filled, reader):
        response = reader.get(address("nothing", []))

        assert response.status_code == 404
        assert "Existing states: flights_by_carrier" in text(response)

    def test_its_statements_do_not_grow_with_versions(self, filled, reader, django_assert_num_queries):
        reader.get(EWR)

        # Session, user, permissions, strip; the pipeline, the state and its keys; the reader's are not Django's.
        with django_assert_num_queries(10):
            reader.get(EWR)


class TestPastedLookup:
    def ask(self, client: Client, keys: str, state: str = "flights_by_carrier", **more: str):
        return client.post(f"/states/{state}/lookup", {"keys": keys, **more}, follow=True)

    def test_each_line_is_answered_in_the_order_pasted(self, filled, reader):
        page = text(self.ask(reader, 'JFK,C00\nEWR\tC00\n\nLGA, C00\n["JFK", "C00"]\nJFK\n'))

        assert "3 found 1 missing 1 invalid As of batch 2, " in page
        assert (
            " 1 JFK · C00 found 100 12.50 140 2 EWR · C00 found 1,100 12.50 1,040 4 LGA · C00 missing — — — "
            "5 JFK · C00 found 100 12.50 140 6 JFK invalid expected 2 parts (origin, carrier), got 1 " in page
        )

    def test_expired_and_missing_keys_are_distinguished(self, filled, reader):
        filled.conn.execute(
            "UPDATE tidegauge_state.flights_by_carrier SET updated_at = updated_at - interval '2 years'"
        )

        assert "1 missing 1 expired" in text(self.ask(reader, "JFK,C00\nLGA,C00"))

    def test_an_earlier_batch_can_be_looked_up(self, filled, reader):
        page = text(self.ask(reader, "EWR,C00", as_of="1"))

        assert " 1 EWR · C00 found 100 12.50 140 " in page

    def test_more_keys_than_a_lookup_may_have_are_refused_with_the_text_kept(self, filled, reader, settings):
        settings.TIDEGAUGE_LOOKUP_MAX_KEYS = 2

        response = self.ask(reader, "A,1\nB,2\nC,3")

        assert "Lookup failed. 3 keys exceed the limit of 2 per lookup; look them up in parts." in text(response)
        assert b"A,1\nB,2\nC,3</textarea>" in response.content

    def test_pasted_text_is_escaped(self, filled, reader):
        response = self.ask(reader, "<script>,</textarea>")

        assert b"<script>," not in response.content
        assert "<script> · </textarea> missing" in text(response)

    def test_the_result_does_not_refresh_itself(self, filled, reader):
        assert b'id="poll"' not in self.ask(reader, "EWR,C00").content

    def test_a_form_from_another_site_is_refused(self, filled, django_user_model):
        visitor = Client(enforce_csrf_checks=True)
        visitor.force_login(django_user_model.objects.create_user("visitor"))

        response = self.ask(visitor, "EWR,C00")

        assert response.status_code == 403
        assert "This form has expired" in text(response)

    def test_its_address_alone_redirects_to_the_form(self, filled, reader):
        assert reader.get(f"{CARRIERS}/lookup").headers["Location"] == "/states/flights_by_carrier/#lookup"

    def test_an_unknown_state_lists_the_existing_ones(self, filled, reader):
        assert self.ask(reader, "EWR", state="nothing").status_code == 404

    def test_its_statements_do_not_grow_with_keys(self, filled, reader, django_assert_num_queries):
        self.ask(reader, "EWR,C00")

        # Session, user, permissions, strip; the state and its keys; the reader's are not Django's.
        with django_assert_num_queries(8):
            reader.get(f"{CARRIERS}/lookup", {"keys": "\n".join(f"EWR,C{n:02}" for n in range(30))})

    def test_its_address_repeats_it_for_another_reader(self, filled, reader, django_user_model):
        other = Client()
        other.force_login(django_user_model.objects.create_user("other"))

        response = self.ask(reader, "EWR,C00\nÅ&?,C00", as_of="1")
        [(shared, _)] = response.redirect_chain

        assert "1 found 1 missing As of batch 1, " in text(other.get(shared))
        assert "The address of this page repeats this lookup." in text(response)

    def test_a_list_too_long_for_an_address_is_answered_without_one(self, filled, reader):
        response = self.ask(reader, "EWR,C00\n" * 500)

        assert response.redirect_chain == []
        assert "500 found" in text(response)
        assert "this page cannot be shared" in text(response)


class TestStateInRedis:
    def test_its_keys_have_pages_and_lookups_too(self, connection, reader):
        with redis_views(connection, changelog=True, ttl=timedelta(days=2)) as views:
            views.commit({"/home": 3, "/cart": 1})
            views.commit({"/home": 2})
            page = with_steady_ages(reader.get(address(views.name, ["/home"])))
            found = text(reader.post(f"/states/{views.name}/lookup", {"keys": "/home\n/nothing"}, follow=True))

        assert "/home found expires in 47 h views 5 " in page
        assert re.search(r" 2 [\d :-]+ UTC 5 .* 1 [\d :-]+ UTC 3 ", page)
        assert "1 found 1 missing" in found


@pytest.mark.parametrize("where", ["key?key=[]", "lookup"])
def test_without_a_session_it_redirects_to_the_login(filled, where):
    assert Client().get(f"{CARRIERS}/{where}").headers["Location"].startswith("/login?next=/states/")
