import json
import re
import stat
from contextlib import suppress
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from tests.webapp.configuration.conftest import EVERY_KIND
from tidegauge.webapp.accounts.audit.models import AuditEntry
from tidegauge.webapp.accounts.authentication import verified
from tidegauge.webapp.accounts.models import ApiKey
from tidegauge.webapp.configuration.notation import as_yaml, parse
from tidegauge.webapp.notify.webhooks.models import Webhook

HOOKS = "webhooks:\n  ops:\n    url: https://hooks.example.com/t0ps3cret\n"
SECRET = re.compile(r"(?:tmk_[0-9a-f]{8}_|whsec_)[\w/+=-]{20,}")


def run(name: str, *words: str) -> tuple[int, str]:
    """Return the exit status and what is on standard output."""
    out = StringIO()
    try:
        call_command(name, *words, stdout=out, stderr=StringIO())
    except SystemExit as ended:
        return int(str(ended.code)), out.getvalue()
    return 0, out.getvalue()


class TestApply:
    def test_secrets_are_printed_once(self, filled, file):
        path = file(as_yaml(EVERY_KIND))

        status, printed = run("apply", path)

        secrets = SECRET.findall(printed)
        assert (status, len(secrets)) == (0, 2)
        assert verified(next(each for each in secrets if each.startswith("tmk_"))) == ApiKey.objects.get()
        assert SECRET.findall(run("apply", path)[1]) == []

    def test_secrets_are_in_no_other_output(self, filled, file, caplog):
        path = file(as_yaml(EVERY_KIND))
        shown = run("diff", path)[1] + run("diff", path, "--json")[1]

        secrets = SECRET.findall(run("apply", path)[1])

        shown += run("export")[1] + caplog.text + json.dumps(list(AuditEntry.objects.values("detail", "target")))
        assert not any(secret in shown for secret in secrets)
        assert SECRET.findall(shown) == []

    def test_only_the_export_has_the_path_of_a_webhook(self, filled, file):
        path = file(HOOKS)

        shown = run("diff", path)[1] + run("diff", path, "--json")[1] + run("apply", path)[1]

        assert "https://hooks.example.com/.." in shown
        assert "t0ps3cret" not in shown
        assert "t0ps3cret" not in json.dumps(list(AuditEntry.objects.values("detail")))
        assert "t0ps3cret" in run("export")[1]

    def test_secrets_go_to_a_file_that_only_its_owner_reads(self, filled, file, tmp_path):
        kept = tmp_path / "secrets.yaml"

        _, printed = run("apply", file(HOOKS), "--secrets", str(kept))

        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        assert parse(kept.read_text())["webhooks"]["ops"].startswith("whsec_")
        assert SECRET.findall(printed) == []

    def test_a_file_of_secrets_that_exists_is_refused(self, db, file, tmp_path):
        kept = tmp_path / "secrets.yaml"
        kept.write_text("older")

        with pytest.raises(CommandError, match=r"secrets\.yaml' exists; name a new file") as refused:
            run("apply", file(HOOKS), "--secrets", str(kept))

        assert (refused.value.returncode, kept.read_text(), Webhook.objects.exists()) == (2, "older", False)

    @pytest.mark.parametrize("text", ["webhooks: {}\n", "webhooks: {ops: {url: ftp://x}}\n"])
    def test_no_empty_file_of_secrets_stays(self, db, file, tmp_path, text):
        kept = tmp_path / "secrets.yaml"

        with suppress(CommandError):
            run("apply", file(text), "--secrets", str(kept))

        assert not kept.exists()

    def test_as_json(self, db, file):
        _, printed = run("apply", file(HOOKS), "--json")

        document = json.loads(printed)
        assert [(each["act"], each["name"]) for each in document["changes"]] == [("create", "ops")]
        assert document["secrets"]["webhooks"]["ops"].startswith("whsec_")

    def test_an_error_names_the_file(self, db, file):
        path = file("webhooks: {ops: {url: ftp://x}}\n")

        with pytest.raises(CommandError) as refused:
            run("apply", path)

        assert str(refused.value).startswith(f"{path}: webhook 'ops': url: the URL must begin with https://")
        assert (str(refused.value).endswith("; nothing was changed"), refused.value.returncode) == (True, 2)


class TestDiff:
    def test_the_exit_status_says_whether_something_differs(self, db, file):
        path = file(HOOKS)

        status, printed = run("diff", path)
        assert (status, printed.splitlines()[0]) == (1, "+ webhook ops")

        run("apply", path)
        assert run("diff", path) == (0, "")
        assert run("diff", path, "--json") == (0, '{"changes": []}\n')

    def test_a_changed_field_is_shown_before_and_after(self, db, file):
        run("apply", file(HOOKS))

        _, printed = run("diff", file(f"{HOOKS}    enabled: false\n"))

        assert printed == "~ webhook ops\n    enabled: true -> false\n"

    def test_a_removed_object_is_shown(self, db, file):
        run("apply", file(HOOKS))

        status, printed = run("diff", file("webhooks: {}\n"), "--prune")

        assert (status, printed.splitlines()[0]) == (1, "- webhook ops")

    @pytest.mark.parametrize(
        "text", ["a: [", "webhook: {}\n", "webhooks: {ops: {url: ftp://x}}\n", "webhooks: {ops: 1}"]
    )
    def test_an_error_has_the_exit_status_2(self, db, file, text):
        with pytest.raises(CommandError) as refused:
            run("diff", file(text))

        assert refused.value.returncode == 2

    def test_an_unexpected_error_has_the_exit_status_2(self, db, file, monkeypatch):
        monkeypatch.setattr("tidegauge.webapp.configuration.services.LOCK", "SELECT no_such_function()")

        with pytest.raises(CommandError, match="no_such_function") as refused:
            run("diff", file(HOOKS))

        assert refused.value.returncode == 2

    def test_a_missing_file_is_refused(self, db, tmp_path):
        with pytest.raises(CommandError, match="No such file") as refused:
            run("diff", str(Path(tmp_path / "missing.yaml")))

        assert refused.value.returncode == 2


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_an_export_can_be_applied_and_changes_nothing(filled, file, options):
    run("apply", file(as_yaml(EVERY_KIND)))

    path = file(run("export", *options)[1])

    assert run("diff", path, "--prune") == (0, "")
