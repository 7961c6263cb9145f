"""The page of a pipeline's dead letters: groups of the same reason, the letters of one, filters, raw records."""

import re
from html import unescape

import pytest
from django.contrib.auth.models import Permission

from tests.webapp.confirming import confirm
from tests.webapp.console.dashboard.page_text import text
from tidegauge.state_backends.dead_letters.letters import DeadLetter, write_dead_letters
from tidegauge.state_backends.dead_letters.replay import put_back, take
from tidegauge.state_backends.ledger.batch import lock_fence

REPLAY = "/pipelines/flights/dead-letters/replay"


def listed(response) -> str:
    """What a reader sees of the list of letters, without the groups."""
    return re.sub("<[^>]+>", " ", response.content.decode().partition('<table class="stack letters">')[2])


class TestDeadLettersPage:
    @pytest.fixture
    def letters(self, filled):
        filled.commit({("JFK", "C00"): 5}, [DeadLetter("/in/a.jsonl", "{", "not JSON", line) for line in range(1, 31)])
        batch = filled.commit({("JFK", "C00"): 5})
        write_dead_letters(filled.conn, batch, [DeadLetter("/in/b.jsonl", "[]", "no object", 7)], state="totals")
        return filled

    def test_pages_have_every_letter_once_newest_first(self, letters, reader):
        first = reader.get("/pipelines/flights/dead-letters")
        following = re.search(r'rel="next" href="([^"]*)"', first.content.decode())[1]
        second = reader.get(f"/pipelines/flights/dead-letters{following}")
        lines = [place for page in (first, second) for place in re.findall(r"([ab])\.jsonl:(\d+)", listed(page))]

        assert lines == [("b", "7"), *(("a", str(line)) for line in range(30, 0, -1))]

    def test_they_are_filtered_by_state_and_by_batch(self, letters, reader):
        by_state = text(reader.get("/pipelines/flights/dead-letters?state=totals"))
        by_batch = text(reader.get("/pipelines/flights/dead-letters?txid=3"))

        assert "b.jsonl:7 no object state totals" in by_state
        assert "a.jsonl" not in by_state
        assert "b.jsonl" not in by_batch
        assert re.search(r"a.jsonl:30 not JSON .*? batch 3 ", by_batch)

    def test_the_next_page_keeps_the_filter(self, letters, reader):
        page = reader.get("/pipelines/flights/dead-letters?txid=3").content.decode()

        assert re.search(r'rel="next" href="\?txid=3&amp;before=3\.\d+"', page)

    def test_a_filter_without_result_can_be_cleared(self, letters, reader):
        page = text(reader.get("/pipelines/flights/dead-letters?state=<i>&txid=2"))

        assert "No dead letters match. Clear filters" in page

    def test_those_of_the_open_batch_do_not_show(self, filled, reader):
        filled.open({("JFK", "C00"): 5}, [DeadLetter("/in/a.jsonl", "{", "not JSON", 3)])

        assert "No dead letters." in text(reader.get("/pipelines/flights/dead-letters"))

    @pytest.mark.parametrize(
        "query",
        ["before=x", "before=1.x", "before=99999999999999999999.1", "txid=x", "state=%00", "reason=%00", "reason=(["],
    )
    def test_an_invalid_query_is_not_an_error(self, letters, reader, query):
        assert reader.get(f"/pipelines/flights/dead-letters?{query}").status_code == 200


class TestGroups:
    @pytest.fixture
    def letters(self, filled):
        bad = [DeadLetter("/in/a.jsonl", f'{{"n": "x{n}"}}', f'n: expected int, got "x{n}"', n) for n in range(1, 4)]
        late = [
            DeadLetter(
                "/in/b.jsonl", "[", f"not JSON: Expecting value at column {n}", n, record={"line": "raw [", "n": n}
            )
            for n in (1, 12)
        ]
        batch = filled.commit({("JFK", "C00"): 5}, [*bad, *late])
        write_dead_letters(
            filled.conn, batch, [DeadLetter("state totals", "{}", "n: expected int, got 9")], state="totals"
        )
        return filled

    def test_letters_whose_reasons_differ_in_values_alone_are_one_group_by_what_rejected_them(self, letters, reader):
        page = text(reader.get("/pipelines/flights/dead-letters"))

        assert "n: expected int, got … e.g. a.jsonl:3 the source 3 50.0 %" in page
        assert "not JSON: Expecting value at column … e.g. b.jsonl:12 the source 2 33.3 %" in page
        assert "n: expected int, got … e.g. state totals state totals 1 16.7 %" in page

    def test_a_group_leads_to_its_letters_alone_and_keeps_the_other_filters(self, letters, reader):
        groups = reader.get("/pipelines/flights/dead-letters?txid=3").content.decode()
        [address] = [unescape(each) for each in re.findall(r'href="(\?[^"]*)">not JSON', groups)]

        page = reader.get(f"/pipelines/flights/dead-letters{address}")

        assert "txid=3" in address
        assert re.findall(r"([ab])\.jsonl:(\d+)", listed(page)) == [("b", "12"), ("b", "1")]
        assert "the source 2 100.0 %" in text(page)

    def test_a_page_without_the_permission_offers_no_export(self, letters, reader):
        assert "Export" not in text(reader.get("/pipelines/flights/dead-letters"))

    def test_a_page_without_the_permission_has_neither_examples_nor_raw_records(self, letters, reader):
        page = reader.get("/pipelines/flights/dead-letters").content.decode()

        assert "raw [" not in page
        assert "x3&quot;}" not in page

    def test_with_it_each_letter_has_its_raw_record(self, letters, reader, may_view_dead_letters):
        page = text(reader.get("/pipelines/flights/dead-letters?state=(source)"))

        assert 'Raw record {"n": 12, "line": "raw ["}' in page
        assert "No raw record was kept." in page

    def test_exports_have_the_filters_of_the_page(self, letters, reader, may_view_dead_letters):
        page = reader.get("/pipelines/flights/dead-letters?state=(source)&reason=n:+expected+int,+got+…")

        [csv, ndjson] = [unescape(each) for each in re.findall(r'href="(/api/v1/[^"]*)"', page.content.decode())]
        filters = "state=%28source%29&reason=n%3A+expected+int%2C+got+%E2%80%A6"
        assert csv.endswith(f"/export?format=csv&{filters}")
        assert ndjson.endswith(f"/export?format=ndjson&{filters}")
        assert "Export" not in text(reader.get("/pipelines/flights/dead-letters?txid=99"))

    def test_the_trend_has_a_bar_for_each_step_of_the_time(self, letters, reader):
        letters.conn.execute("UPDATE tidegauge.dead_letter SET at = at - interval '1 hour' WHERE line_number = 1")

        page = reader.get("/pipelines/flights/dead-letters").content.decode()

        assert page.count('class="trend"') == 3
        assert "At most 2 letters in each of 24 equal time steps" in page

    def test_further_pages_have_no_groups(self, letters, reader):
        assert "By reason" not in text(reader.get("/pipelines/flights/dead-letters?before=3.999999"))


class TestReplay:
    @pytest.fixture
    def letters(self, filled):
        bad = [DeadLetter("a.jsonl", "{", f'n: expected int, got "x{n}"', n, record={"n": n}) for n in (1, 2)]
        filled.commit({("JFK", "C00"): 5}, [*bad, DeadLetter("a.jsonl", "", "lost: 7")])
        return filled

    @pytest.fixture
    def operator(self, reader, django_user_model):
        user = django_user_model.objects.get(username="reader")
        user.user_permissions.add(Permission.objects.get(codename="replay_dead_letters"))
        return reader

    def test_a_group_with_raw_records_offers_it_to_those_who_may(self, letters, operator):
        page = operator.get("/pipelines/flights/dead-letters")

        assert page.content.decode().count(f'href="{REPLAY}') == 1
        assert "Replay 2 letters: n: expected int, got …" in text(page)
        assert REPLAY not in operator.get("/pipelines/flights/dead-letters?txid=3").content.decode()

    def test_without_the_permission_it_is_neither_offered_nor_done(self, letters, reader):
        assert REPLAY not in reader.get("/pipelines/flights/dead-letters").content.decode()
        assert reader.post(REPLAY).status_code == 403

    def test_the_page_follows_it_to_its_end(self, letters, operator):
        asked = confirm(operator, f"{REPLAY}?reason=n: expected int, got …", follow=True)
        waiting = text(operator.get("/pipelines/flights/dead-letters"))
        with letters.conn.transaction():
            batch = letters.open({("JFK", "C00"): 1})
            lock_fence(letters.conn, batch)
            put_back(letters.conn, [(take(letters.conn, batch)[0].id, "not JSON")])
        letters.finish(batch)
        ended = text(operator.get("/pipelines/flights/dead-letters"))

        assert "Replay requested: 2 dead letters, in a batch of their own." in text(asked)
        assert "Last replay: 2 letters, requested by reader" in waiting
        assert "2 wait for the driver's next batch." in waiting
        assert "1 were counted, the last in batch 4 . 1 are still dead letters." in ended

    def test_a_refusal_says_why(self, letters, operator):
        letters.die()

        page = text(confirm(operator, REPLAY, follow=True))

        assert "Pipeline 'flights' has no running driver" in page
        assert "`tidegauge replay_dead_letters flights`" in page
        assert operator.post("/pipelines/nosuch/dead-letters/replay").status_code == 404
