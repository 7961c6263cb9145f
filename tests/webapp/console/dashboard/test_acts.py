"""The page of the operations on a pipeline: what each would do now, its command, and what is under way."""

import re
from html import unescape

import pytest
from django.contrib.auth.models import Permission
from django.test import Client

from tests.webapp.console.dashboard.page_text import text
from tidegauge.state_backends.ledger import driver_status
from tidegauge.state_backends.ledger.state_lock import state_lock
from tidegauge.webapp.accounts.models import Restriction

PAGE = "/pipelines/flights/operations"


@pytest.fixture
def operator(reader, django_user_model) -> Client:
    user = django_user_model.objects.get(username="reader")
    user.user_permissions.set(Permission.objects.filter(codename__in=["change_pipeline", "add_maintenancerun"]))
    return reader


def commands(response) -> list[str]:
    return [unescape(each) for each in re.findall(r'aria-label="Command">([^<]*)</pre>', response.content.decode())]


class TestCommands:
    def test_each_act_has_its_exact_command_with_copy(self, filled, operator):
        page = operator.get(PAGE)

        assert commands(page) == [
            "tidegauge run flights --reprocess",
            "tidegauge rebuild flights_by_carrier",
            "tidegauge audit flights_by_carrier",
            "tidegauge audit flights_by_hour",
            "tidegauge audit totals",
            "tidegauge pipelines restore-checkpoint flights",
            "tidegauge pipelines skip-lost flights",
        ]
        ids = re.findall(r'data-copy="#([^"]+)"', page.content.decode())
        assert len(ids) == len(set(ids)) == 7

    def test_what_needs_the_pipeline_for_itself_names_the_driver_that_runs(self, filled, operator):
        running = text(operator.get(PAGE))
        filled.die()
        stopped = text(operator.get(PAGE))

        assert running.count("Not possible now: the driver of flights is running: stop it first.") == 3
        assert "Not possible now" not in stopped

    def test_a_state_with_a_changelog_is_audited_by_a_worker(self, filled, operator):
        page = operator.get(PAGE).content.decode()

        assert 'href="/states/flights_by_carrier/audit"' in page
        assert 'href="/states/totals/audit"' not in page


class TestRewind:
    def test_it_says_what_is_taken_back_and_how_each_state_goes(self, filled, operator):
        filled.die()
        page = operator.get(PAGE, {"to": "1"})

        shown = text(page)
        assert "1 batch with 1,000 rows will be taken back, and 0 dead letters with it." in shown
        assert "State 'flights_by_carrier': is rewound with its changelog" in shown
        assert "State 'totals': is rewound with the previous versions in its rows" in shown
        assert "Not possible now" not in shown
        assert commands(page)[1:3] == [
            "tidegauge pipelines rewind flights --to 1 --dry-run",
            "tidegauge pipelines rewind flights --to 1",
        ]

    @pytest.mark.parametrize(
        ("to", "reason"),
        [
            ("1", "State 'totals': has no changelog, and its rows reach back only to batch 2"),
            ("9", "batch 9 is not committed; the newest is batch 3"),
            ("0", "cannot go back to batch 0"),
        ],
    )
    def test_what_the_ledger_cannot_take_back_is_refused_by_name(self, filled, operator, to, reason):
        filled.commit({("EWR", "C00"): 1})
        filled.die()

        shown = text(operator.get(PAGE, {"to": to}))

        assert "Not possible now:" in shown
        assert reason.lower() in shown.lower()

    def test_it_touches_nothing(self, filled, operator):
        before = filled.conn.execute("SELECT * FROM tidegauge.pipeline").fetchall()

        operator.get(PAGE, {"to": "1"})

        assert filled.conn.execute("SELECT * FROM tidegauge.pipeline").fetchall() == before

    def test_a_refresh_keeps_the_batch(self, filled, operator):
        page = operator.get(PAGE, {"to": "1"}).content.decode()

        assert "&quot;to&quot;:&quot;1&quot;" in page


class TestProgress:
    def test_a_work_on_a_state_shows_while_it_is_under_way(self, filled, operator, connection):
        version = re.search(r"&quot;v&quot;:&quot;([\w.]+)", operator.get(PAGE).content.decode())[1]
        headers = {"HX-Request": "true"}
        before = operator.get(PAGE, {"v": version}, headers=headers)
        with state_lock(connection, "flights_by_carrier", "rebuild"):
            during = operator.get(PAGE, {"v": version}, headers=headers)

        assert (before.status_code, during.status_code) == (204, 200)
        assert "Rebuild of flights_by_carrier is running on host" in text(during)
        assert "is running on host" not in text(operator.get(PAGE))

    def test_a_reprocess_shows_beside_the_states_that_are_served(self, reprocessing, operator):
        reprocessing.report("running", pending={"count": 0, "unit": "files", "oldest": None})

        page = operator.get(PAGE)

        assert re.search(r"Served now running 1 — [\d.,]+ 0 files Reprocessed running 1 40 20 2 files", text(page))
        assert commands(page)[0] == "tidegauge run flights --abort-reprocess"
        assert "Not possible now: it runs: stop its process first." in text(page)

    def test_a_reprocess_that_failed_can_be_continued(self, reprocessing, operator):
        driver_status.report(reprocessing.conn, "flights@reprocess", "failed", "out of disk")

        page = operator.get(PAGE)

        assert "It continues after the 40 rows that it has counted." in text(page)
        assert commands(page)[:2] == [
            "tidegauge run flights --reprocess",
            "tidegauge run flights --abort-reprocess",
        ]


class TestWhoMay:
    def test_others_get_no_link_and_no_page(self, filled, reader, operator, django_user_model):
        assert f'href="{PAGE}"' in operator.get("/pipelines/flights/").content.decode()
        django_user_model.objects.get(username="reader").user_permissions.clear()

        assert f'href="{PAGE}"' not in reader.get("/pipelines/flights/").content.decode()
        assert reader.get(PAGE).status_code == 403
        assert Client().get(PAGE).status_code == 302

    def test_a_restricted_person_is_refused(self, filled, operator, django_user_model):
        Restriction.objects.create(user=django_user_model.objects.get(username="reader"), states=["totals"])

        assert operator.get(PAGE).status_code == operator.get("/pipelines/nosuch/operations").status_code == 403

    def test_an_unknown_pipeline_lists_the_existing_ones(self, filled, operator):
        assert operator.get("/pipelines/nosuch/operations").status_code == 404
