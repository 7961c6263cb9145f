"""The command `doctor`: each fault of an installation is found, with a remedy that can be typed."""

import json
import re
import shlex
from datetime import UTC, datetime, timedelta
from functools import partial
from io import StringIO

import pytest
import redis
from django.conf import settings as django_settings
from django.core.management import CommandError, call_command

from tests.docs.test_code_blocks import check_command
from tests.users_project import CLICKS
from tests.webapp.committed_flights import no_database
from tidegauge.pipelines.checkpoint.folder import note_batch
from tidegauge.pipelines.embedded.data_dir import REPOSITORY, data_dir
from tidegauge.state_backends.ledger import findings
from tidegauge.state_backends.ledger.batch_time import checked_clock
from tidegauge.webapp.commands.management.doctor import database, installation, redis_server
from tidegauge.webapp.commands.management.doctor.finding import ERROR, OK, WARNING

BOUND = "SELECT checkpoint_id FROM tidegauge.pipeline WHERE name = 'flights'"


def examined():
    """Return, by level, the remedy of each finding by check and message; and how the command ended."""
    out, ended = StringIO(), ""
    try:
        call_command("doctor", "--json", stdout=out)
    except CommandError as error:
        ended = str(error)
    every = [json.loads(line) for line in out.getvalue().splitlines()]
    assert all(bool(each["remedy"]) == (each["level"] != "ok") for each in every)
    levels = {level: {} for level in (ERROR, WARNING, OK)}
    for each in every:
        levels[each["level"]][each["check"], each["message"]] = each["remedy"]
    return levels, ended


def checks(findings):
    return {check for check, _ in findings}


@pytest.fixture
def evicting():
    """The tests' Redis may evict every key."""
    client = redis.Redis.from_url(django_settings.REDIS_URL)
    client.config_set("maxmemory-policy", "allkeys-lru")
    client.config_set("maxmemory", "1gb")
    yield
    client.config_set("maxmemory", "0")
    client.config_set("maxmemory-policy", "noeviction")


@pytest.fixture
def forgotten_slot(lasting):
    """A replication slot that nothing reads."""
    lasting.conn.execute("SELECT pg_create_physical_replication_slot('forgotten', true)")
    yield
    lasting.conn.execute("SELECT pg_drop_replication_slot('forgotten')")


def an_hour_ahead():
    return datetime.now(UTC) + timedelta(hours=1)


def checkpoint_that_has_seen_a_later_batch(lasting):
    batch = lasting.commit({("JFK", "AA"): 1})
    folder = data_dir() / "checkpoints" / "flights"
    folder.mkdir(parents=True)
    (folder / "metadata").write_text(json.dumps({"id": lasting.conn.execute(BOUND).fetchone()[0]}))
    note_batch(folder, batch)
    lasting.conn.execute("UPDATE tidegauge.pipeline SET committed_txid = committed_txid - 1 WHERE name = 'flights'")


def test_what_is_as_it_should_be_is_no_finding(lasting, forgotten_slot, working_directory):
    lasting.report("running")

    levels, ended = examined()

    # The tests' own server is faster than it is durable.
    [(check, message)] = levels[ERROR]
    assert (check, message.partition(":")[0]) == ("database", "fsync, full_page_writes off")
    assert ended == "1 thing is wrong"
    assert any("slot 'forgotten'" in text for _, text in levels[OK])
    assert checks(levels[OK]) >= {
        "versions", "disk", "database", "tables", "clock", "redis", "pipelines", "states"
    }  # fmt: skip


def test_every_fault_is_found_in_one_run(lasting, forgotten_slot, working_directory, settings, monkeypatch, evicting):
    settings.DEBUG = True
    monkeypatch.setattr(installation, "LEAST_FREE_BYTES", 1 << 60)
    monkeypatch.setattr(database, "checked_clock", partial(checked_clock, now=an_hour_ahead))
    for limits, name in (
        (database, "MOST_CONNECTIONS"),
        (database, "MOST_SLOT_BYTES"),
        (redis_server, "MOST_USED_MEMORY"),
    ):
        monkeypatch.setattr(limits, name, -1)
    (working_directory / ".env").write_text("SECRET_KEY=x")
    (working_directory / "acme" / "clicks.py").write_text(CLICKS.replace('"clicked"', '"flights_by_carrier"'))
    lasting.report("failed", "no disk")
    findings.record(lasting.conn, "flights_by_carrier", "state 'flights_by_carrier': it has lost rows")
    checkpoint_that_has_seen_a_later_batch(lasting)

    levels, ended = examined()

    errors, warnings = levels[ERROR], levels[WARNING]
    assert checks(errors) == {
        "settings", "disk", "database", "clock", "redis", "pipelines", "states", "checkpoints", "declarations"
    }  # fmt: skip
    assert ended == "9 things are wrong"
    [remedy] = [remedy for (check, _), remedy in errors.items() if check == "pipelines"]
    assert remedy.startswith("Correct the cause, then ")
    said = "\n".join(text for _, text in warnings)
    assert "can be read by others" in said
    assert re.search(r"slot 'forgotten' keeps .*, and nothing reads it", said)
    assert re.search(r"\d+ of \d+ connections are used", said)
    assert re.search(r"of maxmemory .* are used", said)
    assert "no worker is alive" in said


def test_without_a_database_the_rest_is_checked(db, working_directory):
    with no_database():
        levels, _ = examined()

    assert [check for check, _ in levels[ERROR]] == ["database"]
    assert "redis" in checks(levels[OK])


def test_every_command_of_a_remedy_can_be_typed():
    folder = REPOSITORY / "webapp" / "commands" / "management"
    text = "".join(file.read_text() for file in [*(folder / "doctor").glob("*.py"), folder / "commands" / "doctor.py"])
    commands = re.findall(r"`(tidegauge [^`]+)`", text)

    assert len(commands) > 5
    for command in commands:
        check_command(shlex.split(re.sub(r"\{[\w.]+\}", "flights", command)))
