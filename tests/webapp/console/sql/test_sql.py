"""SQL of people reads the live views, as a role that can do nothing else, within limits that its text cannot lift."""

import csv
import io
import re

import psycopg
import pytest
from django.core.management import CommandError, call_command

from tests.docs.blocks import blocks
from tests.webapp.console.dashboard.page_text import text
from tests.webapp.console.sql.conftest import PASSWORD, address_of
from tidegauge.webapp.accounts.audit.models import AuditEntry
from tidegauge.webapp.accounts.concurrency import SEARCHES
from tidegauge.webapp.accounts.models import Restriction
from tidegauge.webapp.catalog import readers
from tidegauge.webapp.console.sql import run as module
from tidegauge.webapp.core.installation import sql_address
from tidegauge.webapp.core.pools import pool_of


def ran(client, statement, **form):
    return client.post("/sql", {"statement": statement} | form)


def cells(answer) -> list[list[str]]:
    """Return the rows of the table of an answer."""
    rows = re.findall(r"<tr>(<td.*?)</tr>", answer.content.decode())
    return [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in rows]


class TestAnswers:
    def test_it_reads_live_views_by_the_names_of_states(self, lasting, role, analyst):
        answer = ran(analyst, "SELECT origin, carrier, flights FROM flights_by_carrier ORDER BY flights DESC LIMIT 2")

        assert cells(answer)[0] == ["EWR", "C00", "1100"]
        assert '<th scope="col" class="figure">flights</th>' in answer.content.decode()
        shown = analyst.get("/states/flights_by_carrier/explore").content.decode()
        assert 'href="/sql?state=flights_by_carrier"' in shown
        example = 'SELECT * FROM "flights_by_carrier" LIMIT 100'
        assert example in text(analyst.get("/sql?state=flights_by_carrier"))
        assert len(cells(ran(analyst, example))) == 60

    def test_the_statement_of_its_page_runs(self, lasting, role, analyst):
        [documented] = [block.text for block in blocks("sql") if block.page == "dashboard.md"]

        assert cells(ran(analyst, documented))[0][0] == "EWR"

    def test_every_kind_of_value_is_shown(self, role, analyst):
        answer = ran(
            analyst, "SELECT 1.50, NULL, true, '<b>'::text, '{a,b}'::text[], now() - now(), 'x' AS x, 'y' AS x;"
        )

        assert cells(answer) == [
            ["1.50", '<span class="muted">null</span>', "true", "&lt;b&gt;", "{a,b}", "00:00:00", "x", "y"]
        ]

    @pytest.mark.parametrize("statement", ["VALUES (1), (2)", "WITH a AS (VALUES (1), (2)) SELECT * FROM a -- all"])
    def test_a_statement_may_be_any_that_reads(self, role, analyst, statement):
        assert cells(ran(analyst, statement)) == [["1"], ["2"]]

    def test_a_download_has_no_text_that_a_spreadsheet_runs(self, role, analyst):
        answer = ran(analyst, "SELECT '=cmd()' AS \"=x\", -5 AS number, '+1' AS number", format="csv")

        assert answer["Content-Type"] == "text/csv; charset=utf-8"
        rows = list(csv.reader(io.StringIO(answer.content.decode())))
        assert rows == [["'=x", "number", "number_"], ["'=cmd()", "-5", "'+1"]]


class TestLimits:
    def test_rows(self, role, analyst):
        answer = ran(analyst, "SELECT * FROM generate_series(1, 5000)")

        assert len(cells(answer)) == 1_000
        assert "More rows exist" in text(answer)

    def test_bytes(self, role, analyst, monkeypatch):
        monkeypatch.setattr(module, "MOST_TOGETHER", 2_500)

        found = module.run("SELECT repeat('x', 100000000) FROM generate_series(1, 3)", analyst_user(analyst))

        assert [len(value) for (value,) in found.rows] == [1_000, 1_000]
        assert found.more

    def test_time_even_if_the_text_sets_another(self, role, analyst, monkeypatch):
        monkeypatch.setitem(module.SESSION, "statement_timeout", "300ms")

        answer = ran(analyst, "SELECT set_config('statement_timeout', '0', false), pg_sleep(60)")

        assert answer.status_code == 400
        assert "It was cancelled after 5 seconds" in text(answer)

    def test_columns_and_characters(self, role, analyst):
        many = ", ".join(["1"] * 101)

        assert "101 columns are more than the 100" in text(ran(analyst, f"SELECT {many}"))
        assert "more than 20,000 characters" in text(ran(analyst, "SELECT 1" + " " * 30_000 + "+ 1"))

    def test_it_counts_as_a_search_of_who_runs_it(self, role, analyst, settings):
        settings.TIDEGAUGE_SEARCHES_EACH = 1

        with SEARCHES.held(f"user {analyst_user(analyst).pk}"):
            refused = ran(analyst, "VALUES (1)")

        assert refused.status_code == 429
        assert pool_of({"PATH_INFO": "/sql", "QUERY_STRING": "", "REQUEST_METHOD": "POST"}) == "searches"


class TestGuards:
    @pytest.mark.parametrize(
        ("statement", "reason"),
        [
            ("VALUES (1); DROP TABLE auth_user", "Only one statement can be run at a time"),
            ("DROP TABLE auth_user", "Only a statement that returns rows can be run"),
            ("SHOW statement_timeout", "Only SELECT, VALUES, TABLE and WITH can be run"),
            ("EXPLAIN SELECT 1", "Only SELECT, VALUES, TABLE and WITH can be run"),
            ("SELECT 1) AS a (b), (SELECT 2", "syntax error"),
            ("SELECT * FROM public.auth_user", "permission denied"),
            ("SELECT * FROM tidegauge.batch", "permission denied"),
            ("SELECT query_to_xml('SELECT * FROM public.auth_user', true, true, '')", "permission denied"),
            ("SELECT set_config('role', session_user, true), * FROM tidegauge.state", "permission denied"),
            ("SELECT pg_read_file('/etc/passwd')", "permission denied"),
            ("SELECT lo_from_bytea(0, 'x')", "read-only transaction"),
            ("SELECT set_config('transaction_read_only', 'off', true)", "read-write mode"),
            ("SELECT $1", "A parameter such as $1 has no value here"),
            ("", "There is no statement"),
            ("SELECT 'a\0b", "unterminated quoted string"),
        ],
    )
    def test_it_does_nothing_but_read_live_views(self, role, analyst, statement, reason):
        answer = ran(analyst, statement)

        assert answer.status_code == 400
        assert reason.lower() in text(answer).lower()

    def test_what_a_function_would_send_is_not_sent(self, role, analyst):
        with readers.own_connection() as listening:
            listening.execute("LISTEN guarded")
            ran(analyst, "SELECT pg_notify('guarded', 'x')")

            assert list(listening.notifies(timeout=0.2)) == []

    def test_an_error_is_shown_where_it_is(self, role, analyst):
        page = ran(analyst, "\n  SELECT nothing FROM pg_class").content.decode()

        assert "Column &quot;nothing&quot; does not exist" in page
        assert "SELECT <mark>n</mark>othing FROM pg_class" in page

    def test_an_error_of_its_rows_is_shown(self, role, analyst):
        assert "Division by zero" in text(ran(analyst, "SELECT 1 / (x - x) FROM generate_series(1, 2) x"))

    def test_an_address_runs_nothing(self, role, analyst):
        assert analyst.get("/sql?statement=VALUES(1)").status_code == 200
        assert not AuditEntry.objects.filter(action="sql.run").exists()

    def test_every_run_is_audited_before_it_begins(self, role, analyst):
        ran(analyst, "SELECT 1 / 0")

        entry = AuditEntry.objects.get(action="sql.run")
        assert (entry.action, entry.actor, entry.detail) == ("sql.run", "reader", {"statement": "SELECT 1 / 0"})


class TestRole:
    def test_it_is_off_unless_it_was_switched_on(self, db, analyst, settings):
        assert settings.TIDEGAUGE_SQL == sql_address("") == {}

        answer = ran(analyst, "VALUES (1)")

        assert answer.status_code == 503
        assert "SQL is switched off here: TIDEGAUGE_SQL_URL is not set" in text(answer)

    def test_a_missing_role_is_named_with_the_command_that_makes_it(self, db, analyst, settings):
        settings.TIDEGAUGE_SQL = address_of("nobody_sql")

        page = text(ran(analyst, "VALUES (1)"))

        assert "The database has no role 'nobody_sql'; an operator makes one with tidegauge sql-role" in page

    def test_a_wrong_password_is_refused_without_showing_any(self, role, analyst, settings, monkeypatch):
        def refused(**given):
            raise psycopg.OperationalError(f"connection with {given} failed")

        monkeypatch.setattr(module.psycopg, "connect", refused)

        answer = ran(analyst, "VALUES (1)")

        assert answer.status_code == 503
        assert f"The role '{role}' cannot sign in to the database" in text(answer)
        assert PASSWORD not in answer.content.decode()

    def test_a_role_that_may_do_more_is_not_used(self, role, analyst, settings):
        with readers.own_connection() as conn:
            conn.execute(f"GRANT SELECT (id) ON public.auth_user TO {role}")
            granted = text(ran(analyst, "VALUES (1)"))
            conn.execute(f"REVOKE SELECT (id) ON public.auth_user FROM {role}")
            conn.execute(f"GRANT pg_read_server_files TO {role}")
            member = text(ran(analyst, "VALUES (1)"))
            conn.execute(f"REVOKE pg_read_server_files FROM {role}")
        settings.TIDEGAUGE_SQL = {
            name: str(part) for name, part in readers.plain_parameters().items() if name in address_of(role)
        }
        mighty = text(ran(analyst, "VALUES (1)"))

        assert f"The role '{role}' may use public.auth_user, so SQL as this role could do more" in granted
        assert f"The role '{role}' is a member of pg_read_server_files" in member
        assert "is a superuser or may change roles" in mighty
        assert not AuditEntry.objects.filter(action="sql.run").exists()

    def test_the_command_makes_it_and_prints_its_address(self, role, capsys, monkeypatch):
        monkeypatch.setenv("TIDEGAUGE_SQL_PASSWORD", "short")
        with pytest.raises(CommandError, match="fewer than 12 characters"):
            call_command("sql_role")

        monkeypatch.setenv("TIDEGAUGE_SQL_PASSWORD", PASSWORD)
        call_command("sql_role")

        assert capsys.readouterr().out.startswith(f"postgresql://{role}:..@")

    @pytest.mark.parametrize("address", ["nonsense", "postgresql://db.example/tidegauge"])
    def test_a_wrong_address_stops_the_start_without_showing_it(self, address):
        from django.core.exceptions import ImproperlyConfigured

        with pytest.raises(ImproperlyConfigured, match="TIDEGAUGE_SQL_URL") as raised:
            sql_address(address)

        assert address not in str(raised.value)


class TestPeople:
    def test_it_takes_the_permission(self, role, reader):
        for answer in (reader.get("/sql"), ran(reader, "VALUES (1)")):
            assert answer.status_code == 403
            assert "states.run_sql" in text(answer)
        assert not AuditEntry.objects.filter(action="sql.run").exists()

    @pytest.mark.parametrize("scope", [{"states": ["totals"]}, {"key_prefix": ["EWR"]}])
    def test_it_takes_a_person_without_a_restriction(self, role, analyst, scope):
        Restriction.objects.create(user=analyst_user(analyst), **scope)

        assert ran(analyst, "VALUES (1)").status_code == 403
        assert 'href="/sql"' not in analyst.get("/search?q=SQL").content.decode()

    def test_it_takes_a_login(self, db, client):
        assert client.get("/sql").url.startswith("/login?next=")
        assert client.post("/sql", {"statement": "VALUES (1)"}).url.startswith("/login?next=")


def analyst_user(client):
    from django.contrib.auth.models import User

    return User.objects.get(username="reader")
