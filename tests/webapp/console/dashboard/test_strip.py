"""The strip with the problems of all pipelines, on top of every page and in its title."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client

from tests.webapp.console.dashboard.page_text import text
from tests.webapp.console.dashboard.test_live import ask, next_poll
from tests.webapp.console.dashboard.test_weight import PAGES
from tidegauge.state_backends import BatchLedger, Catalog
from tidegauge.state_backends.dead_letters.letters import DeadLetter
from tidegauge.state_backends.ledger import driver_status
from tidegauge.webapp.accounts.models import Restriction
from tidegauge.webapp.catalog import queries
from tidegauge.webapp.notify.alerts.acknowledged import acknowledge

LETTER = DeadLetter("/in/a.jsonl", "{", "not JSON", 3)


def strip(response) -> str:
    return re.sub(r"<[^>]*>", "", re.search(r'<p id="strip".*?</p>', response.content.decode())[0])


def title(response) -> str:
    return re.search("<title>(.*?)</title>", response.content.decode())[1]


@pytest.mark.parametrize("address", PAGES)
def test_every_page_has_it(filled, admin_client, address):
    well = admin_client.get(address)
    filled.report("failed", "no disk")

    failed = admin_client.get(address)

    assert strip(well) == "No problems in 1 pipeline"
    assert strip(failed) == "1 failed of 1 pipeline"
    assert title(failed) == f"1 failed — {title(well)}"


def test_it_counts_pipelines_by_verdict_the_worst_first(connection, flights, reader):
    Catalog(connection).register_pipeline("late", spout="transactional")
    BatchLedger(connection, "late").acquire()
    waiting = {"count": 1, "unit": "files", "oldest": (datetime.now(UTC) - timedelta(minutes=16)).isoformat()}
    driver_status.report(connection, "late", "running", progress={"pending": waiting})
    flights.commit({("JFK", "C00"): 3_450}, [LETTER] * 886)
    flights.report("running", pending={"count": 0, "unit": "files", "oldest": None})

    page = reader.get("/maintenance")

    assert strip(page) == "1 lagging · 26 % rejected of 2 pipelines"
    assert 'class="status bad" href="/pipelines/late/" title="late"' in page.content.decode()


def test_what_is_acknowledged_is_no_problem_and_is_counted_apart(connection, flights, reader, admin_user):
    for name in ("late", "lost"):
        Catalog(connection).register_pipeline(name, spout="opaque")
        BatchLedger(connection, name).acquire()
        driver_status.report(connection, name, "failed", "no disk")
    acknowledge([queries.pipeline("lost")], admin_user)
    one = reader.get("/maintenance")
    acknowledge([queries.pipeline("late")], admin_user)
    all_of_them = reader.get("/maintenance")

    assert strip(one) == "1 failed · 1 acknowledged of 3 pipelines"
    assert 'data-troubled="1"' in one.content.decode()
    assert title(one).startswith("1 failed — ")
    assert strip(all_of_them) == "2 acknowledged of 3 pipelines"
    assert 'data-troubled="0"' in all_of_them.content.decode()
    assert "favicon-trouble" not in all_of_them.content.decode()


def test_a_restricted_reader_does_not_see_what_is_acknowledged(filled, reader, admin_user, django_user_model):
    filled.die()
    acknowledge([queries.pipeline("flights")], admin_user)
    Restriction.objects.create(user=django_user_model.objects.get(username="reader"), states=["totals"])

    assert strip(reader.get("/maintenance")) == "1 lost of 1 pipeline"


def test_without_pipelines_there_is_none(db, reader):
    assert b'id="strip"' not in reader.get("/").content


def test_visitors_do_not_see_it(filled):
    filled.die()

    assert b"1 lost" not in Client().get("/login").content


@pytest.mark.parametrize("address", ["/states/totals/", "/maintenance"])
def test_a_page_of_something_else_follows_it(filled, reader, address):
    page = reader.get(address)
    unchanged = ask(reader, address, next_poll(page))
    filled.die()

    answer = ask(reader, address, next_poll(page))

    assert unchanged.status_code == 204
    assert strip(answer) == "1 lost of 1 pipeline"
    assert answer.content.startswith(b"<title>1 lost ")


def test_a_restricted_user_does_not_learn_of_other_pipelines(filled, reader, django_user_model):
    filled.die()
    Restriction.objects.create(user=django_user_model.objects.get(username="reader"), states=["elsewhere"])

    page = reader.get("/")

    assert b'id="strip"' not in page.content
    assert "lost" not in text(page)
