"""Limits of a rule's own: a figure above begins an alert, one within ends it, an unknown one neither."""

import re
from collections.abc import Callable
from datetime import timedelta

import pytest

from tests.webapp.console.dashboard.page_text import text
from tests.webapp.flights import Flights
from tests.webapp.notify.alerts.conftest import NOON
from tidegauge.state_backends import Catalog
from tidegauge.webapp.accounts.audit.models import AuditEntry
from tidegauge.webapp.notify.alerts.figures import ABOVE_LIMIT, LIMITS
from tidegauge.webapp.notify.alerts.models import Alert, AlertRule, Silence
from tidegauge.webapp.notify.webhooks.models import Delivery

ADD = "/admin/tidegauge_alerts/alertrule/add/"
FORM = {"name": "ops", "verdicts": [], "after_seconds": "300", "mail_to": "a@example.com", "enabled": "on"}
WELL = {"count": 0, "unit": "files", "oldest": None}
LAGGING = {"count": 7, "unit": "files", "oldest": "2026-11-20T12:00:00+00:00"}


def pending(flights: Flights, count: int | None, oldest: str | None = None) -> None:
    flights.report("running", pending=None if count is None else {"count": count, "unit": "files", "oldest": oldest})


def took(flights: Flights, *seconds: float) -> None:
    """Commit batches that took so long."""
    for each in seconds:
        txid = flights.commit({("JFK", "AA"): 1}).txid
        flights.conn.execute(
            "UPDATE tidegauge.batch SET started_at = committed_at - make_interval(secs => %s) WHERE txid = %s",
            [each, txid],
        )


def committed(flights: Flights, seconds: float) -> None:
    """Let the newest batch be as old at noon."""
    flights.conn.execute("UPDATE tidegauge.batch SET committed_at = %s", [NOON - timedelta(seconds=seconds)])


def rejected(flights: Flights, letters: int) -> None:
    flights.conn.execute("UPDATE tidegauge.batch SET rows_in = 100, dead_letters = %s", [letters])


def newest_event(flights: Flights, seconds: float) -> None:
    """Let the newest event be as old at noon."""
    flights.conn.execute(
        "UPDATE tidegauge.batch SET committed_at = %s, metrics = jsonb_build_object('event_age_seconds', %s::float8) "
        "WHERE txid = 2",
        [NOON, seconds],
    )


FIGURES: dict[str, tuple[float, Callable[[Flights], None], Callable[[Flights], None], str]] = {
    "lag_seconds": (
        300, lambda flights: pending(flights, 7, LAGGING["oldest"]), lambda flights: pending(flights, 0),
        "flights lag above limit: its oldest input has waited for ",
    ),
    "pending_input": (
        1_000, lambda flights: pending(flights, 1_234), lambda flights: pending(flights, 1_000),
        "flights pending input above limit: its pending input is 1,234, more than 1,000",
    ),
    "rejected_share": (
        0.2, lambda flights: rejected(flights, 25), lambda flights: rejected(flights, 20),
        "flights dead letters above limit: 25 % of the rows of recent batches are dead letters, more than 20 %",
    ),
    "event_age_seconds": (
        900, lambda flights: newest_event(flights, 1_000), lambda flights: newest_event(flights, -1_000),
        "flights newest event too old: its newest event is 1,015 s old, more than 900 s",
    ),
    "batch_gap_seconds": (
        900, lambda flights: committed(flights, 1_000), lambda flights: committed(flights, -1_000),
        "flights no batch within limit: its newest batch was committed 1,015 s ago, more than 900 s",
    ),
    "batch_seconds": (
        30, lambda flights: took(flights, 40, 40, 40), lambda flights: took(flights, 5, 5, 5),
        "flights batch seconds above limit: its newest batches take 40 s, more than 30 s",
    ),
}  # fmt: skip


class TestALimit:
    @pytest.mark.parametrize("name", FIGURES)
    def test_a_figure_above_it_is_told_once_and_again_when_it_is_over(self, filled, look, rule, name):
        limit, exceed, mend, said = FIGURES[name]
        rule(verdicts=[], **{name: limit})
        assert look(15) == []

        exceed(filled)
        [begun] = look(30) or look(45)
        assert said.replace("1,015", "1,030") in Delivery.objects.get().body
        assert look(600) == []

        mend(filled)
        assert look(640) == []
        assert look(690) == [f"{begun} is over"]
        assert look(1_200) == []
        assert Alert.objects.get().figure == name

    def test_every_figure_is_tested(self):
        assert len(FIGURES) == len(ABOVE_LIMIT)

    def test_it_has_to_be_exceeded_for_as_long_as_the_rule_says(self, filled, look, rule):
        rule(verdicts=[], pending_input=100, after_seconds=300)
        pending(filled, 101)
        assert look(290) == []

        pending(filled, 0)
        assert look(600) == []
        assert not Alert.objects.exists()

        pending(filled, 101)
        assert look(910) == []
        assert look(930) == ["Tidegauge: flights pending input above limit"]

    def test_one_slow_batch_among_others_is_none(self, filled, look, rule):
        rule(verdicts=[], batch_seconds=30)
        took(filled, 5, 5, 600, 5, 600)

        assert look(60) == []

    def test_slow_batches_of_another_day_are_none(self, filled, look, rule):
        rule(verdicts=[], batch_seconds=30)
        took(filled, 600, 600, 600)
        filled.conn.execute(
            "UPDATE tidegauge.batch SET committed_at = committed_at - interval '2 d', "
            "started_at = started_at - interval '2 d'"
        )

        assert look(60) == []

    def test_it_and_a_verdict_of_the_same_rule_are_alerts_of_their_own(self, filled, look, rule):
        rule(lag_seconds=300, pending_input=5)
        filled.report("failed", "no disk", pending=LAGGING)

        assert look(15) == ["Tidegauge: 3 alerts, 3 open"]
        filled.report("running", pending=WELL | {"count": 6})
        assert look(90) == ["Tidegauge: flights failed is over"]
        filled.report("running", pending=WELL)
        assert look(400) == ["Tidegauge: 2 alerts, 2 over"]
        assert Alert.objects.count() == 3

    def test_a_rule_of_a_state_is_about_its_pipeline(self, filled, look, rule):
        rule(verdicts=[], states=["totals"], pending_input=5)
        rule("elsewhere", verdicts=[], states=["of another pipeline"], pending_input=5, mail_to=["b@example.com"])
        pending(filled, 6)

        assert look(15) == ["Tidegauge: flights pending input above limit"]
        assert Delivery.objects.get().mail_to == ["ops@example.com"]

    def test_it_is_silenced_as_verdicts_are(self, filled, look, rule):
        rule(verdicts=[], pending_input=5)
        Silence.objects.create(pipeline="flights", until=NOON + timedelta(minutes=10))
        pending(filled, 6)

        assert look(590) == []
        assert look(620) == ["Tidegauge: flights pending input above limit"]

    def test_one_that_is_removed_leaves_no_alert_open(self, filled, look, rule):
        made = rule(verdicts=["failed"], pending_input=5)
        pending(filled, 6)
        look(15)

        AlertRule.objects.filter(pk=made.pk).update(pending_input=None)

        assert look(200) == ["Tidegauge: flights pending input above limit is over"]

    @pytest.mark.parametrize("changed", [{"pipelines": ["elsewhere"]}, {"verdicts": ["stopped"]}])
    def test_what_a_rule_is_no_longer_about_is_over(self, filled, look, rule, changed):
        made = rule(verdicts=["failed"])
        filled.report("failed", "no disk")
        look(15)

        AlertRule.objects.filter(pk=made.pk).update(**changed)

        assert look(200) == ["Tidegauge: flights failed is over"]


class TestAnUnknownFigure:
    def test_it_begins_no_alert(self, filled, look, rule):
        rule(verdicts=[], lag_seconds=1, pending_input=1, batch_seconds=1)
        pending(filled, None)

        assert look(600) == []
        assert not Alert.objects.exists()

    def test_it_ends_no_alert(self, filled, look, rule):
        rule(verdicts=[], pending_input=5)
        pending(filled, 6)
        look(15)
        pending(filled, 0)
        look(60)

        pending(filled, None)
        assert look(600) == []
        assert Alert.objects.get().ended_at is None
        assert Alert.objects.get().reason.endswith("more than 5; it is unknown now, so the alert stays open")

        pending(filled, 0)
        assert look(645) == []
        assert look(700) == ["Tidegauge: flights pending input above limit is over"]
        assert Alert.objects.get().reason.endswith("more than 5")

    def test_a_pipeline_without_a_batch_has_no_alert_and_unknown_figures(self, filled, look, rule, admin_client):
        Catalog(filled.conn).register_pipeline("fresh", spout="transactional")
        made = rule(verdicts=[], pipelines=["fresh"], **{name: figure[0] for name, figure in FIGURES.items()})

        assert look(600) == []
        assert not Alert.objects.exists()
        named = ", ".join(limit.figure for limit in LIMITS.values())
        assert f"fresh: {named}" in text(admin_client.get(f"/admin/tidegauge_alerts/alertrule/{made.pk}/change/"))

    def test_the_page_of_its_pipeline_says_so(self, filled, rule, reader):
        rule("ages", verdicts=[], event_age_seconds=60)
        rule("elsewhere", verdicts=[], event_age_seconds=60, pipelines=["other"])
        rule("disabled", verdicts=[], event_age_seconds=60, enabled=False)

        page = text(reader.get("/pipelines/flights/"))

        assert "Unknown: age of the newest event . The rule ages has a limit for it" in page
        assert "elsewhere" not in page
        assert "disabled" not in page

        newest_event(filled, 5)
        assert "Unknown: age" not in text(reader.get("/pipelines/flights/"))

    def test_the_time_that_it_has_to_last_is_counted_from_when_it_is_known_again(self, filled, look, rule):
        rule(verdicts=[], pending_input=5, after_seconds=300)
        pending(filled, 6)
        look(200)
        pending(filled, None)
        look(215)
        pending(filled, 6)

        assert look(500) == []
        assert look(540) == ["Tidegauge: flights pending input above limit"]

    def test_what_was_silenced_is_not_told_of_while_it_is_unknown(self, filled, look, rule):
        rule(verdicts=[], pending_input=5)
        Silence.objects.create(until=NOON + timedelta(seconds=100))
        pending(filled, 6)
        look(90)

        pending(filled, None)

        assert look(300) == []


class TestInTheAdmin:
    def test_a_rule_of_limits_alone_is_made_and_audited(self, filled, admin_client, mailbox):
        admin_client.post(ADD, FORM | {"lag_seconds": "900", "pending_input": "0", "rejected_share": "0.05"})

        made = AlertRule.objects.get()
        assert (made.verdicts, made.lag_seconds, made.pending_input, made.rejected_share) == ([], 900, 0, 0.05)
        assert AuditEntry.objects.get(target="alert rule ops").detail["lag_seconds"] == 900
        listed = text(admin_client.get("/admin/tidegauge_alerts/alertrule/"))
        page = admin_client.get(f"/admin/tidegauge_alerts/alertrule/{made.pk}/change/").content.decode()
        assert re.findall(r'name="(lag_seconds|rejected_share)" value="([^"]*)"', page) == [
            ("lag_seconds", "900"),
            ("rejected_share", "0.05"),
        ]
        assert "lag over 900 s, pending input over 0, share of dead letters over 5 % for 300 s" in listed

    @pytest.mark.parametrize(
        ("field", "value", "said"),
        [
            ("lag_seconds", "0", "enter a number of seconds above 0, or nothing; got 0"),
            ("batch_gap_seconds", "-5", "enter a number of seconds above 0, or nothing; got -5"),
            ("batch_seconds", "nan", "Enter a number."),
            ("pending_input", "-1", "greater than or equal to 0"),
            ("pending_input", "99999999999999999999", "less than or equal to"),
            ("rejected_share", "20", "enter a share from 0 to below 1, such as 0.2 for 20 %, or nothing; got 20"),
            ("rejected_share", "1", "got 1"),
        ],
    )
    def test_a_bad_limit_is_refused_by_its_name(self, filled, admin_client, mailbox, field, value, said):
        answer = admin_client.post(ADD, FORM | {field: value})

        [(name, errors)] = answer.context["adminform"].form.errors.items()
        assert name == field
        assert said in errors[0]
        assert said.replace("'", "&#x27;") in text(answer)
        assert not AlertRule.objects.exists()

    def test_a_rule_that_reports_nothing_is_refused(self, filled, admin_client, mailbox):
        answer = admin_client.post(ADD, FORM)

        assert "choose what to report: verdicts, or limits of figures" in text(answer)
        assert not AlertRule.objects.exists()


def test_the_page_of_a_pipeline_shows_it(filled, rule, look, reader):
    rule("backlog", verdicts=[], pending_input=5)
    pending(filled, 6)
    look(15)

    page = text(reader.get("/pipelines/flights/"))

    assert "pending input above limit backlog its pending input is 6, more than 5" in page
