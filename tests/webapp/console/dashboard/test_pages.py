import os
import re
import socket
from datetime import UTC, datetime, timedelta
from html import unescape

import pytest
from django.test import Client

from tests.webapp.console.dashboard.page_text import following, keys, text, with_steady_ages
from tidegauge.state_backends import Catalog, PostgresBackingMap, StateSpec, Versioned
from tidegauge.state_backends.backends.postgres.reader import StateReader
from tidegauge.state_backends.dead_letters.letters import DeadLetter
from tidegauge.state_backends.ledger import driver_status
from tidegauge.webapp.console.dashboard.entries import PAGE_ENTRIES

PAGES = ["/", "/pipelines/flights/", "/states/flights_by_carrier/", "/states/flights_by_hour/", "/states/totals/"]


class TestOverview:
    def test_without_pipelines_it_says_how_to_start_one(self, db, reader):
        page = text(reader.get("/"))

        assert "No pipelines yet" in page
        assert "tidegauge demo --port 8001" in page

    def test_it_shows_every_pipeline_and_state(self, filled, reader):
        page = text(reader.get("/"))

        assert re.search(r"flights caught up none [\d,.]+ Rows/s over .* 0 % 3 2 ", page)
        page = text(reader.get("/states/"))
        assert "flights_by_carrier flights origin, carrier opaque 60 " in page
        assert "totals flights global opaque 1 " in page

    def test_a_sparkline_shows_the_last_batches(self, filled, reader):
        assert "Rows per second of the last 2 batches" in reader.get("/").content.decode()

    def test_a_lost_driver_is_explained(self, filled, reader):
        filled.die()

        page = text(reader.get("/"))

        assert "flights lost Its driver stopped responding" in page
        assert "Driver stopped responding at " in text(reader.get("/pipelines/flights/"))

    def test_it_shows_which_drivers_and_workers_are_alive(self, filled, reader):
        filled.join()
        filled.join("worker")
        alive = text(reader.get("/"))

        filled.conn.execute("UPDATE tidegauge.synchronizer SET appended_at = appended_at - interval '1 minute'")
        not_responding = text(reader.get("/"))

        assert re.search(rf"driver flights alive {socket.gethostname()} {os.getpid()} 2 just now", alive)
        assert re.search(rf"worker maintenance alive {socket.gethostname()} {os.getpid()} — just now", alive)
        assert re.search(r"driver flights not responding .* worker maintenance not responding ", not_responding)

    def test_its_statements_do_not_grow_with_pipelines(self, filled, reader, django_assert_num_queries):
        # Session, user, permissions and the strip, then pipelines, members, samples, requests, rates and periods.
        with django_assert_num_queries(10):
            reader.get("/")

    def test_a_state_that_is_not_fed_any_more_is_marked(self, filled, reader):
        filled.conn.execute("UPDATE tidegauge.state SET last_fed_txid = 1 WHERE name = 'totals'")

        assert text(reader.get("/states/")).count("not fed") == 1
        assert "Its pipeline has run without it since batch 1" in text(reader.get("/states/totals/"))


class TestPipelinePage:
    def test_batches_show_rows_keys_and_dead_letters(self, filled, reader):
        filled.commit({("JFK", "C00"): 5}, [DeadLetter("/in/a.jsonl", "{", "not JSON", 3)])

        page = text(reader.get("/pipelines/flights/batches"))
        assert re.search(r" 3 committed 5 [\d,.]+ [\d.]+ m?s — 1 1 1 1 0 ", page)

    def test_dead_letters_show_file_line_reason_and_the_line_in_short(self, filled, reader, may_view_dead_letters):
        filled.commit({("JFK", "C00"): 5}, [DeadLetter("/in/a.jsonl", "<b>" + "x" * 500, "not JSON", 3)])

        page = text(reader.get("/pipelines/flights/dead-letters"))

        assert "a.jsonl:3 not JSON " in page
        assert "not JSON <b>xxx" in page
        assert "x" * 300 not in page

    def test_without_the_permission_dead_letters_have_no_input(self, filled, reader):
        filled.commit({("JFK", "C00"): 5}, [DeadLetter("/in/a.jsonl", "<raw>", "not JSON", 3)])

        page = text(reader.get("/pipelines/flights/dead-letters"))
        assert "a.jsonl:3 not JSON " in page
        assert "not JSON You do not have permission to view the input." in page
        assert "<raw>" not in page

    def test_a_tab_says_how_many_dead_letters_there_are(self, filled, reader):
        filled.commit({("JFK", "C00"): 5}, [DeadLetter("/in/a.jsonl", "{", "not JSON", line) for line in range(1, 31)])

        assert "Health Batches Dead letters 30 States & lineage API" in text(reader.get("/pipelines/flights/"))

    def test_what_happened_is_marked_on_the_time_axis(self, filled, admin_client):
        filled.report("running")
        admin_client.post("/pipelines/flights/pause")

        page = admin_client.get("/pipelines/flights/")

        assert "pause requested by admin" in text(page)
        assert "pause requested by admin" in unescape(re.search(r'data-marks="([^"]*)"', page.content.decode())[1])

    def test_a_point_of_a_chart_leads_to_the_batch_of_its_time(self, filled, reader):
        times = filled.conn.execute("SELECT committed_at FROM tidegauge.batch ORDER BY txid").fetchall()

        led = [reader.get("/pipelines/flights/batch", {"time": at.isoformat()}) for [at] in times]
        before = reader.get("/pipelines/flights/batch", {"time": "2013-01-01T10:00:00Z"})

        assert [answer.headers["Location"] for answer in led] == [f"/pipelines/flights/batches/{n}" for n in (1, 2)]
        assert before.headers["Location"] == "/pipelines/flights/batches"

    def test_dead_letters_of_the_open_batch_do_not_show(self, filled, reader):
        filled.open({("JFK", "C00"): 5}, [DeadLetter("/in/a.jsonl", "{", "not JSON", 3)])

        page = text(reader.get("/pipelines/flights/batches"))

        assert "a.jsonl" not in text(reader.get("/pipelines/flights/dead-letters"))
        assert " 3 open — — — — — — — 0 0 — " in page

    def test_a_failed_driver_shows_its_message(self, filled, reader):
        filled.report("failed", "cannot read <input>")

        assert " It will not be retried. " in text(reader.get("/pipelines/flights/"))

    def test_a_driver_that_restarts_shows_the_reason_the_failures_and_the_next_try(self, filled, reader):
        filled.fail("no <disk>", 3, datetime.now(UTC) + timedelta(seconds=30.5))

        page = text(reader.get("/pipelines/flights/"))

        assert re.search(
            r"flights retrying .* The pipeline failed and will restart. Failure 3 of 8 in a row. "
            r"Next attempt in (29|30) s \. no <disk>",
            page,
        )

    def test_a_retry_shows_the_reason_of_the_last_failure(self, filled, reader):
        filled.fail("no <disk>", 3)

        page = text(reader.get("/pipelines/flights/"))

        assert "Failure 3 of 8 in a row; nothing committed since. no <disk>" in page

    def test_late_and_dropped_events_show_by_batch_and_in_total(self, filled, reader):
        filled.commit({("JFK", "C00"): 5}, late=1200, dropped=7)
        filled.commit({("JFK", "C00"): 5}, late=1)

        page = text(reader.get("/pipelines/flights/batches"))

        assert "Late events 1,201 7 dropped Last commit" in text(reader.get("/pipelines/flights/"))
        assert re.search(r" 4 committed 5 [\d,.]+ [\d.]+ m?s — 1 1 1 0 1 ", page)
        assert re.search(r" 3 committed 5 [\d,.]+ [\d.]+ m?s — 1 1 1 0 1,200 7 dropped ", page)

    def test_its_statements_do_not_grow_with_batches(self, filled, reader, django_assert_num_queries):
        # Session, user, permissions, strip; pipeline, range, batches; marks: 5, history: 2, alerts: 3.
        with django_assert_num_queries(19):
            reader.get("/pipelines/flights/")


class TestPause:
    def test_an_operator_pauses_and_resumes_with_a_button(self, filled, admin_client):
        filled.report("running")
        before = admin_client.get("/pipelines/flights/")
        paused = admin_client.post("/pipelines/flights/pause", follow=True)
        filled.report("paused")
        waiting = admin_client.get("/pipelines/flights/")
        resumed = admin_client.post("/pipelines/flights/resume", follow=True)

        assert "Pause pipeline" in text(before)
        assert paused.redirect_chain == [("/pipelines/flights/", 302)]
        assert "Pausing after the current batch. Requested by admin just now" in with_steady_ages(paused)
        assert "Paused. Requested by admin just now . The driver waits" in with_steady_ages(waiting)
        assert "Resume pipeline" in text(waiting)
        assert "Resumed. Requested by admin just now ; the driver continues shortly." in with_steady_ages(resumed)

    def test_a_pause_without_a_driver_says_that_the_next_one_waits(self, filled, reader):
        driver_status.set_desired_state(filled.conn, "flights", paused=True, by="ann")
        filled.report("stopped")

        page = with_steady_ages(reader.get("/pipelines/flights/"))

        assert "Paused. Requested by ann just now . A driver that starts waits until the pipeline is resumed." in page

    @pytest.mark.parametrize("act", ["pause", "resume"])
    def test_others_get_no_button_and_no_access(self, filled, reader, act):
        assert "Pause pipeline" not in text(reader.get("/pipelines/flights/"))
        assert reader.post(f"/pipelines/flights/{act}").status_code == 403
        assert Client().post(f"/pipelines/flights/{act}").status_code == 302
        assert driver_status.read_desired_state(filled.conn, "flights").since is None

    def test_a_form_from_another_site_pauses_nothing(self, filled, admin_user):
        visitor = Client(enforce_csrf_checks=True)
        visitor.force_login(admin_user)

        assert visitor.post("/pipelines/flights/pause").status_code == 403
        assert visitor.get("/pipelines/flights/pause").status_code == 405
        assert not driver_status.read_desired_state(filled.conn, "flights").paused

    def test_an_unknown_pipeline_lists_the_existing_ones(self, filled, admin_client):
        response = admin_client.post("/pipelines/fligths/pause")

        assert response.status_code == 404
        assert "Existing pipelines: flights" in text(response)


class TestStatePage:
    def test_it_shows_schema_and_figures(self, filled, reader):
        page = text(reader.get("/states/flights_by_carrier/"))
        schema = text(reader.get("/states/flights_by_carrier/schema"))

        assert "Keys 60 Committed txid 2 " in page
        assert "Retention 400 days Changelog on" in page
        assert "origin text key carrier text key flights bigint count mean_delay double precision mean" in schema

    def test_the_top_keys_follow_the_measure_chosen(self, filled, reader):
        top_keys = text(reader.get("/states/flights_by_carrier/?by=max_delay")).partition("Top keys")[2]

        assert top_keys.startswith(" flights mean_delay max_delay EWR · C00 1,040 EWR · C01 139 JFK · C00 140") or (
            top_keys.startswith(" flights mean_delay max_delay EWR · C00 1,040 JFK · C00 140 EWR · C01 139")
        )

    def test_the_keys_that_are_up_most_since_yesterday_are_a_link_away(self, filled, reader):
        filled.conn.execute("UPDATE tidegauge.batch SET batch_time = now() - interval '2 days' WHERE txid = 1")
        page = reader.get("/states/flights_by_carrier/?by=flights").content.decode()
        address = unescape(re.search(r'id="movers" href="([^"]*)"', page)[1])

        movers = text(reader.get(address))

        assert "than=1+day+ago" in address
        assert "Not available" not in movers
        assert "EWR · C00" in movers
        assert 'id="movers"' not in reader.get("/states/flights_by_hour/").content.decode()

    def test_entries_come_in_key_order_a_page_at_a_time(self, filled, reader):
        first = reader.get("/states/flights_by_carrier/")
        second = reader.get(following(first))
        third = reader.get(following(second))

        assert keys(first)[:2] == ['["EWR", "C00"]', '["EWR", "C01"]']
        assert [len(keys(page)) for page in (first, second, third)] == [PAGE_ENTRIES, PAGE_ENTRIES, 10]
        assert "1–25 of 60 Next" in text(first)  # noqa: RUF001
        assert keys(third)[-1] == '["JFK", "C29"]'
        assert "51–60 of 60 First page Next" in text(third)  # noqa: RUF001
        assert following(third) is None

    @pytest.mark.parametrize("order", ["", "flights", "-flights", "-mean_delay"])
    def test_the_pages_of_an_order_have_every_key_once(self, filled, reader, order):
        shown, address = [], f"/states/flights_by_carrier/?order={order}"
        while address:
            page = reader.get(address)
            shown += keys(page)
            address = following(page)

        assert len(shown) == len(set(shown)) == 60

    def test_entries_are_filtered_by_key_prefix(self, filled, reader):
        page = reader.get("/states/flights_by_carrier/?prefix=JFK&q=C1")

        assert keys(page) == [f'["JFK", "C{n}"]' for n in range(10, 20)]
        assert "JFK · C00 140" not in text(page)

    def test_an_invalid_key_prefix_is_explained(self, filled, reader):
        page = text(reader.get("/states/flights_by_hour/?prefix=yesterday"))

        assert "Not available. Prefix: hour must be timestamptz, got 'yesterday'" in page

    def test_entries_top_keys_and_downloads_are_filtered_by_a_condition(self, filled, reader):
        page = reader.get("/states/flights_by_carrier/?where=flights>98&prefix=EWR")
        html = page.content.decode()

        assert keys(page) == ['["EWR", "C00"]', '["EWR", "C01"]']
        assert "C02" not in text(page)
        assert "export?format=csv&amp;prefix=%5B%22EWR%22%5D&amp;where=flights%3E98" in html
        assert 'value="flights&gt;98"' in html

    def test_pages_of_a_filter_go_on_where_one_has_ended_early(self, filled, reader, monkeypatch):
        monkeypatch.setattr("tidegauge.state_backends.backends.postgres.pages.MOST_SCANNED", 25)

        first = reader.get("/states/flights_by_carrier/?where=carrier=C29")
        second = reader.get(following(first))
        third = reader.get(following(second))

        assert "None of them match the filter" in text(first)
        assert [keys(page) for page in (first, second, third)] == [[], ['["EWR", "C29"]'], ['["JFK", "C29"]']]
        assert following(third) is None

    def test_a_wrong_condition_is_explained(self, filled, reader):
        page = text(reader.get("/states/flights_by_carrier/?where=flights>many"))

        assert "flights is bigint and takes a whole number in its range, got 'many'" in page
        assert "No entries match carrier=x" in text(reader.get("/states/flights_by_carrier/?where=carrier=x"))

    def test_an_earlier_batch_is_shown_where_a_changelog_has_it(self, filled, reader):
        page = text(reader.get("/states/flights_by_carrier/?as_of=1&q=C00"))

        assert "As of batch 1. Values, top keys and entries are those of that batch" in page
        assert "EWR · C00 100 12.50 140 1 " in page
        assert "EWR · C00 100" in page

    def test_a_batch_that_is_not_available_is_explained(self, filled, reader):
        page = text(reader.get("/states/flights_by_carrier/?as_of=99"))

        assert "Not available. State 'flights_by_carrier': batch 99 is not committed, the newest one is 2" in page
        assert "Show the current state" in page

    def test_downloads_have_the_prefix_and_the_batch_but_not_the_search(self, filled, reader):
        page = reader.get("/states/flights_by_carrier/?prefix=JFK&q=C1&as_of=2").content.decode()

        link = "/api/v1/states/flights_by_carrier/export?format={}&amp;prefix=%5B%22JFK%22%5D&amp;at_txid=2"
        assert all(link.format(name) in page for name in ("csv", "ndjson", "arrow"))
        assert "The search does not apply to downloads" in page

    def test_its_statements_do_not_grow_with_keys_or_states(self, filled, reader, django_assert_num_queries):
        reader.get("/states/flights_by_carrier/")

        # Session, user, restriction, pipelines, trend; state, keys, two for permissions, batches to compare with. The
        # reader's are not Django's.
        with django_assert_num_queries(10):
            reader.get("/states/flights_by_carrier/")

    def test_entries_are_sorted_by_a_measure(self, filled, reader):
        largest = keys(reader.get("/states/flights_by_carrier/?order=-flights"))
        smallest = keys(reader.get("/states/flights_by_carrier/?order=flights"))

        assert largest[0] == '["EWR", "C00"]'
        assert set(smallest[:2]) == {'["EWR", "C29"]', '["JFK", "C29"]'}

    def test_entries_are_searched_by_the_beginning_of_a_key_part(self, filled, reader):
        assert keys(reader.get("/states/flights_by_carrier/?q=c07")) == ['["EWR", "C07"]', '["JFK", "C07"]']

    def test_a_search_without_result_says_so_and_links_back(self, filled, reader):
        response = reader.get("/states/flights_by_carrier/?q=<i>&order=-flights")

        assert "No key starts with <i> . Show all keys" in text(response)
        assert 'href="/states/flights_by_carrier/?order=-flights' in response.content.decode()

    @pytest.mark.parametrize(
        "query",
        [
            "order=-nothing",
            "by=nothing",
            "after=x",
            "after=[1,2,3]",
            "n=x",
            "as_of=x",
            f"as_of={10**19 - 1}",
            "q=%00",
            "q=%ff%25_",
            "prefix=%00",
        ],
    )
    def test_an_invalid_query_is_not_an_error(self, filled, reader, query):
        assert reader.get(f"/states/flights_by_carrier/?{query}").status_code == 200

    def test_values_of_the_open_batch_do_not_show(self, filled, reader):
        filled.open({("EWR", "C00"): 5, ("LGA", "C00"): 1})

        page = reader.get("/states/flights_by_carrier/?q=C00")

        assert keys(page) == ['["EWR", "C00"]', '["JFK", "C00"]']
        assert "EWR · C00 1,100 12.50 1,040 2 " in text(page)

    def test_a_time_in_a_key_is_written_as_in_lookups(self, filled, reader):
        assert "2013-01-01 10:00Z · EWR 1 " in text(reader.get("/states/flights_by_hour/"))

    def test_a_global_aggregate_is_shown_as_figures(self, filled, reader):
        page = text(reader.get("/states/totals/"))

        assert "Value Versions flights 6,130 " in page
        assert """-d '{"keys": [[]]}'""" in text(reader.get("/states/totals/api"))

    def test_a_state_without_a_batch_says_so(self, flights, reader):
        assert "No entries yet" in text(reader.get("/states/flights_by_carrier/"))
        assert "No value: no batch is committed yet" in text(reader.get("/states/totals/"))

    def test_the_example_asks_for_a_key_that_exists(self, filled, reader):
        page = text(reader.get("/states/flights_by_carrier/api"))

        assert "http://testserver/api/v1/states/flights_by_carrier/lookup" in page
        assert """-d '{"keys": [["EWR", "C00"]]}'""" in page

    def test_its_api_reads_one_key_for_the_example_and_none_for_a_search(self, filled, reader, monkeypatch):
        asked, read = [], StateReader.read_page

        def reading(self, query):
            asked.append((query.limit, query.measures))
            return read(self, query)

        monkeypatch.setattr(StateReader, "read_page", reading)

        reader.get("/states/flights_by_carrier/api")
        reader.get("/states/flights_by_carrier/api?q=EWR&order=-flights")

        assert asked == [(1, [])]


class TestJsonState:
    @pytest.fixture
    def page(self, flights, reader) -> str:
        """The page of a state with values of any shape, of a kind whose readers may see an open batch."""
        spec = StateSpec("visits", key={"page": "text"}, value="jsonb", kind="non_transactional", partitions=2)
        Catalog(flights.conn).register_states("flights", [spec], {"visits": "at least once"})
        visits = PostgresBackingMap(flights.conn, spec)
        visits.multi_put([("O'Hare",), ("",)], [Versioned({"seen": [1, "<i>"]}, 1), Versioned("x" * 500, 1)])
        return text(reader.get("/states/visits/"))

    def test_values_are_shortened(self, page):
        assert """O'Hare {"seen": [1, "<i>"]} —""" in page
        assert f"empty {'x' * 160}… —" in page

    def test_a_weaker_guarantee_is_shown(self, page):
        assert "visits starting at least once may show uncommitted rows" in page

    def test_it_has_no_top_keys(self, page):
        assert "Top keys" not in page


class TestAccess:
    @pytest.mark.parametrize("address", PAGES)
    def test_without_a_session_it_redirects_to_the_login_and_back(self, filled, address):
        response = Client().get(address)

        assert (response.status_code, response.headers["Location"]) == (302, f"/login?next={address}")

    def test_a_page_whose_session_ended_reloads(self, filled):
        response = Client().get("/", headers={"HX-Request": "true"})

        assert response.headers["HX-Refresh"] == "true"

    def test_the_login_page_leads_to_the_overview(self, db, django_user_model):
        django_user_model.objects.create_user("ada", password="tide")

        wrong = Client().post("/login", {"username": "ada", "password": "ebb", "next": "/"})
        right = Client().post("/login", {"username": "ada", "password": "tide", "next": "/"})

        assert "Wrong username or password" in text(wrong)
        assert (right.status_code, right.headers["Location"]) == (302, "/")

    def test_maintenance_is_offered_to_operators_only(self, filled, reader, admin_client):
        page = "/states/flights_by_carrier/maintenance"

        assert reader.get(page).status_code == 403
        assert page not in reader.get("/states/flights_by_carrier/").content.decode()
        assert "Compact flights_by_carrier …" in text(admin_client.get(page))


class TestErrors:
    def test_an_unknown_state_lists_the_existing_ones(self, filled, reader):
        response = reader.get("/states/<b>/")

        assert response.status_code == 404
        assert "No state named <b> Existing states: flights_by_carrier flights_by_hour totals" in text(response)

    def test_an_unknown_pipeline_lists_the_existing_ones(self, filled, reader):
        response = reader.get("/pipelines/fligths/")

        assert response.status_code == 404
        assert "No pipeline named fligths Existing pipelines: flights" in text(response)

    def test_an_unknown_address_is_not_found(self, reader):
        response = reader.get("/nothing/here")

        assert response.status_code == 404
        assert "Page not found" in text(response)

    def test_a_failure_shows_no_details(self, reader, monkeypatch):
        monkeypatch.setattr("tidegauge.webapp.catalog.queries.pipelines", lambda: 1 / 0)
        reader.raise_request_exception = False

        response = reader.get("/")

        assert response.status_code == 500
        assert "Something went wrong" in text(response)
        assert "ZeroDivisionError" not in text(response)
