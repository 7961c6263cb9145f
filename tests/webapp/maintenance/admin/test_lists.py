"""The admin's read-only lists and pages, and the links between them."""

import re

import pytest
from django.db import connection as django_connection
from django.test.utils import CaptureQueriesContext
from django.utils.html import escape

from tests.webapp.console.dashboard.page_text import text
from tidegauge.state_backends.dead_letters.letters import DeadLetter
from tidegauge.webapp.accounts.audit.services import record
from tidegauge.webapp.catalog.models import Batch, MaintenanceRun
from tidegauge.webapp.catalog.models import DeadLetter as DeadLetterRow
from tidegauge.webapp.core import admin as core_admin

STATES = "/admin/states/state/"
RUNS = "/admin/states/maintenancerun/"
CARRIERS = "flights_by_carrier"
LETTER = DeadLetter("a.jsonl", "{<b>", "malformed", 3)
KINDS = ["pipeline", "state", "batch", "deadletter", "maintenancerun"]


@pytest.fixture
def populated(filled):
    """A pipeline with rows in every list."""
    filled.commit({("JFK", "C01"): 1}, [LETTER])
    MaintenanceRun.objects.create(kind="expiry", state_id=CARRIERS, requested_by="ann")
    return filled


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("who", ["admin_client", "viewer"])
def test_rows_are_listed_and_opened_but_not_added_or_deleted(populated, request, who, kind):
    client = request.getfixturevalue(who)
    listing = client.get(f"/admin/states/{kind}/")
    first = listing.context["cl"].result_list[0].pk

    page = client.get(f"/admin/states/{kind}/{first}/change/")

    assert (listing.status_code, page.status_code) == (200, 200)
    assert client.get(f"/admin/states/{kind}/add/").status_code == 403
    assert client.post(f"/admin/states/{kind}/{first}/delete/", {"post": "yes"}).status_code == 403


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "state"])
def test_only_states_are_changed(populated, admin_client, kind):
    first = admin_client.get(f"/admin/states/{kind}/").context["cl"].result_list[0].pk

    assert admin_client.post(f"/admin/states/{kind}/{first}/change/", {"name": "x"}).status_code == 403


@pytest.mark.parametrize(
    ("kind", "query"),
    [
        ("pipeline", "q=flights"),
        ("pipeline", "wanted=running"),
        ("state", "q=carrier"),
        ("state", "pipeline__name__exact=flights&kind=opaque&edited=no"),
        ("batch", "q=2"),
        ("batch", "pipeline__name__exact=flights&committed_at__isempty=0&attempts=1"),
        ("deadletter", "q=malformed"),
        ("deadletter", "pipeline__name__exact=flights&state=source"),
        ("maintenancerun", "q=ann"),
        ("maintenancerun", "status__exact=queued&kind__exact=expiry&state__name__exact=flights_by_carrier"),
        ("maintenancerun", "state__pipeline__name__exact=flights"),
    ],
)
def test_lists_can_be_searched_and_filtered(populated, admin_client, kind, query):
    listing = admin_client.get(f"/admin/states/{kind}/?{query}")

    assert listing.status_code == 200
    assert listing.context["cl"].result_count >= 1


@pytest.mark.parametrize(
    ("kind", "query"),
    [
        ("pipeline", "wanted=paused"),
        ("state", "edited=yes"),
        ("state", "kind=transactional"),
        ("batch", "attempts=more"),
        ("deadletter", "state=totals"),
    ],
)
def test_filters_leave_out_the_rest(populated, admin_client, kind, query):
    assert admin_client.get(f"/admin/states/{kind}/?{query}").context["cl"].result_count == 0


class TestLinks:
    @pytest.mark.parametrize(
        ("page", "links"),
        [
            (
                "pipeline/flights",
                [
                    "state/?pipeline__name__exact=flights",
                    "batch/?pipeline__name__exact=flights",
                    "deadletter/?pipeline__name__exact=flights",
                    "maintenancerun/?state__pipeline__name__exact=flights",
                ],
            ),
            (
                f"state/{CARRIERS}",
                [
                    "pipeline/flights/change/",
                    "batch/?pipeline__name__exact=flights&amp;txid=3",
                    f"deadletter/?state={CARRIERS}",
                    f"maintenancerun/?state__name__exact={CARRIERS}",
                ],
            ),
        ],
    )
    def test_a_page_links_to_related_rows(self, populated, admin_client, page, links):
        shown = admin_client.get(f"/admin/states/{page}/change/").content.decode()

        for link in links:
            assert f'href="/admin/states/{link}' in shown
            assert admin_client.get(f"/admin/states/{link}".replace("&amp;", "&")).status_code == 200

    def test_a_batch_links_to_its_dead_letters_and_they_link_back(self, populated, admin_client):
        batch = Batch.objects.get(txid=3)
        there = f"/admin/states/deadletter/?pipeline__name__exact=flights&txid={batch.txid}"

        page = admin_client.get(f"/admin/states/batch/{batch.pk}/change/").content.decode()
        (letter,) = admin_client.get(there).context["cl"].result_list

        assert there.replace("&", "&amp;") in page
        back = admin_client.get(f"/admin/states/deadletter/{letter.pk}/change/").content.decode()
        assert f"/admin/states/batch/{batch.pk}/change/" in back
        assert "&lt;b&gt;" in back

    @pytest.mark.parametrize("page", ["pipeline/flights", f"state/{CARRIERS}"])
    def test_a_page_links_to_the_dashboard_and_the_audit(self, populated, admin_client, page):
        kind, name = page.split("/")
        record("some.act", f"{kind} {name}", by="ann")

        shown = admin_client.get(f"/admin/states/{page}/change/").content.decode()

        audit = f"/admin/audit/auditentry/?target__exact={kind}+{name}"
        assert audit in shown
        assert admin_client.get(audit).context["cl"].result_count == 1
        assert f'href="/{kind}s/{name}' in shown

    def test_an_open_batch_is_shown_as_open(self, filled, admin_client):
        batch = filled.open({("JFK", "C01"): 1})

        page = admin_client.get(f"/admin/states/batch/{Batch.objects.get(txid=batch.txid).pk}/change/")

        assert "open" in page.content.decode()


class TestStatements:
    """The number of statements does not depend on the length of the list."""

    def statements(self, client, kind):
        client.get(f"/admin/states/{kind}/")  # fills the caches
        with CaptureQueriesContext(django_connection) as asked:
            assert client.get(f"/admin/states/{kind}/").status_code == 200
        return len(asked)

    @pytest.mark.parametrize("kind", KINDS)
    def test_more_rows_take_no_more_statements(self, populated, admin_client, kind):
        few = self.statements(admin_client, kind)
        self.add_to(populated)

        many = self.statements(admin_client, kind)

        assert many == few
        assert few <= 14

    def add_to(self, pipeline):
        for n in range(5):
            pipeline.commit({("JFK", "C01"): 1}, [LETTER])
            pipeline.conn.execute("INSERT INTO tidegauge.pipeline (name) VALUES (%s)", [f"more_{n}"])
            pipeline.conn.execute(
                "INSERT INTO tidegauge.state (name, pipeline, definition, guarantee) SELECT %s, pipeline, definition, "
                "guarantee FROM tidegauge.state WHERE name = 'totals'",
                [f"more_{n}"],
            )
            MaintenanceRun.objects.create(kind="expiry", state_id=f"more_{n}", requested_by="ann")

    @pytest.mark.parametrize("kind", ["batch", "deadletter"])
    def test_rows_are_counted_up_to_a_bound(self, filled, admin_client, kind, monkeypatch):
        monkeypatch.setattr(core_admin, "COUNTED_ROWS", 3)
        for _ in range(3):
            filled.commit({("JFK", "C01"): 1}, [LETTER, LETTER])

        with CaptureQueriesContext(django_connection) as asked:
            listing = admin_client.get(f"/admin/states/{kind}/")

        of_list = ("__count", ") listed")
        counts = [query["sql"] for query in asked if any(part in query["sql"] for part in of_list)]
        assert listing.context["cl"].result_count == 3
        assert counts
        assert all("LIMIT 3" in count for count in counts)

    def test_the_filter_does_not_read_all_dead_letters(self, filled, admin_client):
        with CaptureQueriesContext(django_connection) as asked:
            admin_client.get("/admin/states/deadletter/")

        assert not [query["sql"] for query in asked if "DISTINCT" in query["sql"] and "dead_letter" in query["sql"]]


class TestRunPage:
    def test_it_refreshes_itself_only_while_the_run_is_active(self, filled, admin_client):
        run = MaintenanceRun.objects.create(kind="expiry", state_id=CARRIERS, status="running", requested_by="ann")
        active = admin_client.get(f"{RUNS}{run.id}/change/").content.decode()
        MaintenanceRun.objects.update(status="done")

        done = admin_client.get(f"{RUNS}{run.id}/change/").content.decode()

        assert 'http-equiv="refresh"' in active
        assert 'http-equiv="refresh"' not in done

    def test_it_shows_progress_and_figures_before_and_after(self, filled, admin_client):
        run = MaintenanceRun.objects.create(
            kind="compaction",
            state_id=CARRIERS,
            status="done",
            requested_by="ann",
            progress={"steps": [{"step": "changelog entries", "seen": 90_000, "removed": 1_234}]},
            before={"changelog_rows": 90_000, "changelog_bytes": 2_097_152},
            after={"changelog_rows": 88_766, "changelog_bytes": 1_048_576},
        )

        page = admin_client.get(f"{RUNS}{run.id}/change/")

        assert page.context["progress_table"]["rows"] == [["changelog entries", "90,000", "1,234"]]
        assert page.context["figures_table"]["rows"] == [
            ["changelog rows", "90,000", "88,766", "-1,234"],
            ["changelog bytes", "2.1 MB", "1.0 MB", "-1.0 MB"],
        ]
        assert "Compaction of flights_by_carrier: done" in page.content.decode()

    def test_a_run_can_be_cancelled_from_its_page(self, filled, admin_client):
        run = MaintenanceRun.objects.create(kind="expiry", state_id=CARRIERS, requested_by="ann")
        cancel = f"{RUNS}{run.id}/cancel/"

        assert cancel in admin_client.get(f"{RUNS}{run.id}/change/").content.decode()
        assert admin_client.get(cancel).status_code == 405
        assert admin_client.post(cancel).headers["Location"] == f"{RUNS}{run.id}/change/"
        run.refresh_from_db()
        assert run.status == "cancelled"

    def test_an_viewer_cannot_cancel(self, filled, viewer):
        run = MaintenanceRun.objects.create(kind="expiry", state_id=CARRIERS, requested_by="ann")

        assert viewer.post(f"{RUNS}{run.id}/cancel/").status_code == 403

    def test_an_unknown_run_redirects(self, admin_client):
        assert admin_client.get(f"{RUNS}4711/change/").status_code == 302


def test_the_sidebar_lists_what_a_user_may_view(staff):
    page = staff("clerk", "view_deadletter").get("/admin/")

    offered = [item["title"] for group in page.context["sidebar_navigation"] for item in group["items"]]
    assert offered == ["Dead letters"]


class TestRawInputOfDeadLetters:
    @pytest.mark.parametrize(("permissions", "is_shown"), [([], False), (["view_dead_letters"], True)])
    def test_it_is_shown_and_searched_with_the_permission_alone(self, populated, staff, permissions, is_shown):
        client = staff("clerk", "view_deadletter", *permissions)
        letter = DeadLetterRow.objects.get()

        page = client.get(f"/admin/states/deadletter/{letter.pk}/change/").content.decode()
        found = client.get("/admin/states/deadletter/", {"q": LETTER.line}).context["cl"].result_count

        assert LETTER.reason in page
        assert (escape(LETTER.line) in page, found == 1) == (is_shown, is_shown)

    @pytest.mark.parametrize(("permissions", "status"), [([], 400), (["view_dead_letters"], 200)])
    @pytest.mark.parametrize("lookup", ["line", "line__startswith", "record__icontains", "record__isnull"])
    def test_a_filter_in_the_address_needs_the_permission(self, populated, staff, permissions, status, lookup):
        client = staff("clerk", "view_deadletter", *permissions)

        assert client.get("/admin/states/deadletter/", {lookup: "1"}).status_code == status
        assert client.get("/admin/states/deadletter/", {"txid": "1"}).status_code == 200


class TestWritingAsTheDashboard:
    def test_a_pipeline_has_the_status_of_the_strip(self, filled, admin_client):
        filled.fail("no disk", failures=2)

        admin, dashboard = (admin_client.get(path) for path in ("/admin/states/pipeline/", "/"))

        assert " retrying running " in text(admin)
        assert text(dashboard).count(" retrying ") > 1

    def test_sizes_numbers_and_durations_are_written_alike(self, filled, admin_client):
        filled.commit({("EWR", "C00"): 1_234})
        size = re.search(r"60 ([\d.]+ kB) ", text(admin_client.get("/states/")))[1]

        assert f" {size} " in text(admin_client.get("/admin/states/state/"))
        assert re.search(
            r" committed 1 [\d-]+ [\d:]+ UTC [\d.]+ m?s 1,234 ", text(admin_client.get("/admin/states/batch/"))
        )
