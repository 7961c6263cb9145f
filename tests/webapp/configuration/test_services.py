from datetime import timedelta

import pytest
from django.utils import timezone

from tests.webapp.configuration.conftest import BUSIEST, EVERY_KIND, HOOK, apply, differing
from tidegauge.webapp.accounts.audit.models import AuditEntry
from tidegauge.webapp.accounts.authentication import verified
from tidegauge.webapp.accounts.models import ApiKey
from tidegauge.webapp.accounts.services import create_api_key, revoke_api_key
from tidegauge.webapp.api.saved_queries.models import SavedQuery
from tidegauge.webapp.configuration import services
from tidegauge.webapp.configuration.errors import ConfigurationError
from tidegauge.webapp.configuration.kinds.schedule import Schedule
from tidegauge.webapp.notify.alerts.models import AlertRule
from tidegauge.webapp.notify.webhooks.models import Webhook


def actions(**narrowed: str) -> list[str]:
    return list(AuditEntry.objects.filter(**narrowed).order_by("id").values_list("action", flat=True))


class TestApplying:
    def test_each_kind_is_created_whatever_the_order_in_the_file(self, filled):
        applied = apply(EVERY_KIND)

        exported = services.export()
        assert len(applied.changes) == len(EVERY_KIND)
        for kind, objects in EVERY_KIND.items():
            assert {name: exported[kind][name] for name in objects} == objects

    def test_a_second_apply_changes_nothing_and_writes_no_entry(self, filled):
        apply(EVERY_KIND)
        before = AuditEntry.objects.count()

        assert apply(EVERY_KIND).changes == []
        assert AuditEntry.objects.count() == before

    def test_an_error_in_the_last_object_leaves_nothing_of_the_others(self, filled):
        broken = EVERY_KIND | {"schedule": {"Nightly": {"work": "compaction", "crontab": "61 3 * * *"}}}
        before = services.export()

        with pytest.raises(ConfigurationError, match=r"1\.yaml: schedule 'Nightly': crontab: "):
            apply(broken)

        assert services.export() == before
        assert actions() == []

    def test_a_failure_to_keep_the_secrets_leaves_nothing(self, filled):
        def full_disk(secrets):
            raise OSError("no space left")

        with pytest.raises(OSError, match="no space"):
            apply(EVERY_KIND, keep=full_disk)

        assert not Webhook.objects.exists()

    def test_a_field_that_a_file_leaves_out_has_its_default(self, filled):
        apply({"api_keys": {"board": {"rate": 600, "states": ["totals"]}}})

        apply({"api_keys": {"board": {"rate": 600}}})

        assert (ApiKey.objects.get().states, ApiKey.objects.get().rate) == ([], 600)

    def test_a_changed_key_keeps_its_secret_and_follows_at_once(self, filled):
        secret = apply({"api_keys": {"board": {}}}).secrets["api_keys"]["board"]
        assert verified(secret).rate is None

        applied = apply({"api_keys": {"board": {"rate": 60}}})

        assert (verified(secret).rate, applied.secrets) == (60, {})

    def test_what_the_admin_would_store_in_another_form_is_refused(self, filled):
        with pytest.raises(ConfigurationError, match="webhook 'ops': url would be stored in another form"):
            apply({"webhooks": {"ops": {"url": "https://hooks.example.com/a "}}})

        with pytest.raises(ConfigurationError, match="the name would be stored in another form"):
            apply({"webhooks": {"ops ": HOOK}})

    def test_the_entries_are_those_of_the_admin(self, filled):
        apply(EVERY_KIND)
        apply({"webhooks": {"ops": HOOK | {"enabled": False}}})

        changed = AuditEntry.objects.get(action="admin.change")
        assert (changed.actor, changed.target) == ("the command line", "webhook ops")
        assert changed.detail == {
            "changes": "Changed enabled.", "host": "hooks.example.com", "kinds": ["alert"], "states": [], "keys": [],
            "key_prefix": [], "enabled": False,
        }  # fmt: skip

    def test_a_state_without_overrides_may_be_declared_and_pruned(self, filled):
        apply({"states": {"totals": {}}}, prune=True)

        assert differing({"states": {"totals": {}}}, prune=True) == []

    def test_an_unknown_state_is_refused(self, filled):
        with pytest.raises(ConfigurationError, match="state 'total': it does not exist; there are flights_by_carrier,"):
            apply({"states": {"total": {"retention": "1 day"}}})


class TestApiKeys:
    def test_two_active_keys_of_one_name_are_refused_with_what_to_do(self, db):
        first, second = create_api_key("board", ["read"])[0], create_api_key("board", ["read"])[0]

        with pytest.raises(ConfigurationError) as refused:
            differing({"api_keys": {"board": {}}})

        assert str(refused.value) == (
            f"API key 'board': {second} and {first} are both active, and a file could mean either; revoke one of them "
            "with `tidegauge api_keys revoke PREFIX`"
        )

    def test_revoked_and_expired_keys_do_not_count(self, db):
        revoke_api_key(create_api_key("board", ["read"])[0])
        expired = create_api_key("board", ["read"], expires_at=timezone.now() + timedelta(days=1))[0]
        ApiKey.objects.filter(pk=expired.pk).update(expires_at=timezone.now())
        create_api_key("board", ["read"])

        assert differing({"api_keys": {"board": {}}}) == []

    def test_other_keys_of_one_name_do_not_matter(self, db):
        create_api_key("other", ["read"])
        create_api_key("other", ["read"])

        assert differing({"api_keys": {"board": {}}}) == [("create", "api_keys", "board")]

    def test_options_that_the_command_refuses_are_refused(self, db):
        with pytest.raises(ConfigurationError, match=r"its expiry .* is in the past"):
            apply({"api_keys": {"board": {"expires_at": "2020-01-01T00:00:00Z"}}})


class TestSavedQueries:
    def test_a_changed_definition_is_the_next_version_and_published(self, filled):
        apply({"saved_queries": {"busiest": BUSIEST}})
        other = {"definition": {"reads": [{"state": "totals", "keys": [[]], "measures": ["flights"]}]}}

        apply({"saved_queries": {"busiest": other}})

        versions = SavedQuery.objects.order_by("version")
        assert [(each.version, each.status) for each in versions] == [(1, "published"), (2, "published")]
        assert versions[1].definition == other["definition"]
        assert differing({"saved_queries": {"busiest": other}}) == []

    def test_a_removed_query_is_withdrawn_in_all_versions(self, filled):
        apply({"saved_queries": {"busiest": BUSIEST}})
        apply({"saved_queries": {"busiest": BUSIEST | {"description": "all flights"}}})

        apply({"saved_queries": {}}, prune=True)

        assert {each.status for each in SavedQuery.objects.all()} == {"withdrawn"}
        assert differing({"saved_queries": {}}, prune=True) == []

    def test_a_query_of_an_unknown_state_is_refused(self, filled):
        unknown = {"definition": {"reads": [{"state": "total", "keys": [[]]}]}}

        with pytest.raises(ConfigurationError, match=r"saved query 'busiest': definition: reads\[0\]: state 'total'"):
            apply({"saved_queries": {"busiest": unknown}})


class TestPruning:
    def test_without_prune_what_files_do_not_have_stays(self, filled):
        apply(EVERY_KIND)

        assert differing({kind: {} for kind in EVERY_KIND}) == []

    def test_prune_concerns_only_the_kinds_that_files_have(self, filled):
        apply(EVERY_KIND)

        apply({"alert_rules": {}}, prune=True)

        assert (AlertRule.objects.exists(), Webhook.objects.exists()) == (False, True)

    def test_prune_removes_what_the_diff_has_shown(self, filled):
        apply(EVERY_KIND)
        empty = {kind: {} for kind in EVERY_KIND}

        shown = differing(empty, prune=True)
        applied = apply(empty, prune=True)

        assert shown == [(each.act, each.kind, each.name) for each in applied.changes]
        assert ("change", "schedule", "Compact all states") in shown
        assert services.export() == services.as_document(
            {kind: {} for kind in EVERY_KIND} | {"schedule": Schedule.kept}
        )
        assert ApiKey.objects.get().status == "revoked"

    def test_a_webhook_that_a_rule_names_is_not_removed(self, filled):
        apply(EVERY_KIND)

        with pytest.raises(ConfigurationError, match="webhook 'ops': alert rules send to it: 'lag'"):
            apply({"webhooks": {}}, prune=True)

    def test_a_rule_loses_its_webhook_in_the_same_apply(self, filled):
        apply(EVERY_KIND)
        without = {"webhooks": {"new": HOOK}, "alert_rules": {"lag": {"lag_seconds": 300, "webhooks": ["new"]}}}

        apply(without, prune=True)

        assert [hook.name for hook in AlertRule.objects.get().webhooks.all()] == ["new"]


class TestSchedule:
    def test_a_new_installation_has_the_schedule_that_is_restored(self, db):
        assert differing({"schedule": {}}, prune=True) == []
        assert services.export()["schedule"] == services.as_document({"schedule": Schedule.kept})["schedule"]

    def test_a_task_of_the_start_is_restored_and_another_one_removed(self, db):
        nightly = {"work": "expiry", "crontab": "0 3 * * *", "timezone": "Europe/Rome"}
        apply({"schedule": {"Compact all states": {"work": "compaction", "every": "5 days"}, "Nightly": nightly}})
        assert services.export()["schedule"]["Nightly"] == nightly

        assert differing({"schedule": {}}, prune=True) == [
            ("change", "schedule", "Compact all states"), ("remove", "schedule", "Nightly"),
        ]  # fmt: skip

    @pytest.mark.parametrize("when", [{}, {"every": "1 hour", "crontab": "0 3 * * *"}])
    def test_a_task_has_either_an_interval_or_a_crontab(self, db, when):
        with pytest.raises(ConfigurationError, match="choose either an interval or a crontab"):
            apply({"schedule": {"Nightly": {"work": "expiry", **when}}})

    def test_an_interval_that_the_admin_refuses_is_refused(self, db):
        with pytest.raises(ConfigurationError, match="the shortest interval is 10 seconds"):
            apply({"schedule": {"Often": {"work": "expiry", "every": "2 seconds"}}})
