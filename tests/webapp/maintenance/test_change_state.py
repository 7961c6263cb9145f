import json
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from tidegauge.state_backends import Catalog
from tidegauge.state_backends.errors import SpecError, UnknownStateError
from tidegauge.state_backends.schema.overrides import DECLARED
from tidegauge.webapp.accounts.audit.models import AuditEntry
from tidegauge.webapp.catalog import readers
from tidegauge.webapp.maintenance.operations import CatalogBusyError, change_state

CARRIERS = "flights_by_carrier"
DAY = timedelta(days=1)


def set_state(*arguments):
    output = StringIO()
    call_command("set_state", *arguments, stdout=output)
    return output.getvalue()


class TestService:
    def test_an_override_applies_and_is_audited(self, filled, connection):
        terms = change_state(name=CARRIERS, ttl=DAY, changelog=False, requested_by="ann")

        entry = AuditEntry.objects.get()
        assert Catalog(connection).get(CARRIERS).ttl == terms.ttl == DAY
        assert (entry.action, entry.target, entry.actor) == ("state.edit", f"state {CARRIERS}", "ann")
        assert entry.detail == {
            "before": {"ttl_seconds": 34_560_000.0, "changelog": True, "edited": []},
            "after": {"ttl_seconds": 86_400.0, "changelog": False, "edited": ["changelog", "ttl"]},
        }

    def test_an_edit_without_a_change_is_not_audited(self, filled):
        change_state(name=CARRIERS, ttl=DECLARED, requested_by="ann")

        assert not AuditEntry.objects.exists()

    def test_a_rejected_edit_is_not_audited(self, filled, connection):
        with pytest.raises(SpecError):
            change_state(name=CARRIERS, ttl=-DAY, requested_by="ann")
        with pytest.raises(UnknownStateError):
            change_state(name="carriers", ttl=DAY, requested_by="ann")

        assert Catalog(connection).get(CARRIERS).ttl == timedelta(days=400)
        assert not AuditEntry.objects.exists()

    def test_an_edit_that_cannot_be_audited_is_not_made(self, filled, connection, monkeypatch):
        def full(*args, **detail):
            raise OSError("disk full")

        monkeypatch.setattr("tidegauge.webapp.maintenance.operations.record", full)

        with pytest.raises(OSError, match="disk full"):
            change_state(name=CARRIERS, ttl=DAY, requested_by="ann")

        assert Catalog(connection).get(CARRIERS).ttl == timedelta(days=400)

    def test_the_wait_for_a_starting_driver_is_short(self, lasting):
        with readers.own_connection() as driver, driver.transaction():
            driver.execute("LOCK TABLE tidegauge.state IN SHARE ROW EXCLUSIVE MODE")

            with pytest.raises(CatalogBusyError, match="a starting driver has locked the catalog; try again"):
                change_state(name=CARRIERS, ttl=DAY, requested_by="ann")


class TestCommand:
    def test_whole_days_are_printed_without_a_time(self, filled):
        assert set_state(CARRIERS, "--ttl", "30d").startswith(f"{CARRIERS}: ttl 30 days, changelog on")

    def test_it_sets_and_prints_the_settings_and_when_they_apply(self, filled):
        said = set_state(CARRIERS, "--ttl", "1d12h", "--changelog", "off")

        assert said == (
            f"{CARRIERS}: ttl 1 day, 12:00:00, changelog off from the next start of its driver; "
            "overridden: changelog, ttl\n"
        )

    def test_it_resets(self, filled):
        set_state(CARRIERS, "--ttl", "never", "--changelog", "off")

        said = set_state(CARRIERS, "--ttl", "declared", "--changelog", "declared", "--json")

        assert json.loads(said) == {
            "state": CARRIERS, "ttl_seconds": 34_560_000.0, "changelog": True, "edited": []
        }  # fmt: skip

    @pytest.mark.parametrize("words", [[], ["--ttl", "soon"], ["--ttl", "1d?"], ["--ttl", "9" * 40 + "w"]])
    def test_a_usage_error_has_its_own_code(self, filled, words):
        with pytest.raises(CommandError) as caught:
            set_state(CARRIERS, *words)

        assert caught.value.returncode == 2

    def test_a_rejected_setting_is_an_error(self, filled):
        with pytest.raises(CommandError, match="must be longer than zero"):
            set_state(CARRIERS, "--ttl", "0d")

        with pytest.raises(CommandError, match="'carriers' does not exist; there are"):
            set_state("carriers", "--ttl", "1d")
