"""How a driver was started: the commands that start it again, as they work in a shell."""

import os
import sys
from pathlib import Path

import pytest

from tidegauge.state_backends.ledger import driver_start
from tidegauge.state_backends.ledger.driver_start import PLAIN, DriverStart

STARTED = DriverStart(
    program=[".venv/bin/tidegauge"],
    reference="acme.orders:orders",
    options=[["--input", "in box"], ["--checkpoint", "/ck"], ["--once", ""], ["--conf", "spark.a=1"]],
    folder="/srv/shop",
)


def test_a_command_has_the_words_that_the_driver_was_started_with():
    assert STARTED.again("orders") == (
        "cd /srv/shop && .venv/bin/tidegauge run acme.orders:orders --input 'in box' --checkpoint /ck --once "
        "--conf spark.a=1"
    )
    assert PLAIN.again("orders") == "tidegauge run orders"


def test_other_commands_get_the_options_that_they_take():
    assert STARTED.command("pipelines", "restore-checkpoint", "orders", elsewhere=False) == (
        ".venv/bin/tidegauge pipelines restore-checkpoint acme.orders:orders --input 'in box' --checkpoint /ck "
        "--conf spark.a=1"
    )
    assert STARTED.command("pipelines", "resume", "orders", elsewhere=False) == (
        ".venv/bin/tidegauge pipelines resume orders"
    )
    assert STARTED.command("audit", "totals", elsewhere=False).startswith(".venv/bin/tidegauge audit totals --input")


def test_the_commands_of_a_message_are_spelled_once():
    message = "input is lost; run `tidegauge pipelines skip-lost orders` to go on, or `a` and `tidegauge`"

    once = STARTED.spelled(message, elsewhere=False)

    assert "`.venv/bin/tidegauge pipelines skip-lost acme.orders:orders --input 'in box' --checkpoint /ck" in once
    assert once.endswith(" to go on, or `a` and `tidegauge`")
    assert STARTED.spelled(once, elsewhere=False) == once
    assert PLAIN.spelled(PLAIN.spelled(message)) == message


def test_a_unit_is_restarted_and_not_run_beside_its_supervisor():
    assert DriverStart(unit="tidegauge@shop.service").again("orders") == "systemctl restart tidegauge@shop.service"
    assert DriverStart(unit="user:shop.service").again("orders") == "systemctl --user restart shop.service"


def test_an_application_has_no_command_of_ours():
    application = DriverStart(program=["job.py"], verb="", folder="/srv/app")

    assert application.again("orders") == ""
    assert application.command("run", "orders", "--reprocess") == "tidegauge run orders --reprocess"


def test_a_record_of_a_later_release_can_be_read():
    assert DriverStart.from_json(STARTED.as_json() | {"later": 1}) == STARTED
    assert DriverStart.from_json(None) == PLAIN


@pytest.mark.parametrize(
    ("option", "value", "kept"),
    [
        ("--conf", "spark.hadoop.fs.s3a.secret.key=hunter2", "spark.hadoop.fs.s3a.secret.key=***"),
        ("--conf", "spark.hadoop.fs.s3a.access.key=hunter2", "spark.hadoop.fs.s3a.access.key=***"),
        ("--conf", "spark.driver.memory=4g", "spark.driver.memory=4g"),
        ("--checkpoint", "s3a://ann:hunter2@bucket/ck", "s3a://***@bucket/ck"),
    ],
)
def test_secrets_are_not_recorded(option, value, kept):
    assert driver_start.of_command("run", [(option, value)]).options == [(option, kept)]


class TestProgram:
    @pytest.fixture
    def project(self, tmp_path, monkeypatch) -> Path:
        """The working directory, which has an environment of its own; its programs are not on the path."""
        for name in ("tidegauge", "python"):
            script = tmp_path / ".venv" / "bin" / name
            script.parent.mkdir(parents=True, exist_ok=True)
            script.touch(mode=0o755)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "executable", str(tmp_path / ".venv/bin/python"))
        monkeypatch.setenv("PATH", "/nowhere")
        return tmp_path

    def program(self, monkeypatch, script: object) -> list[str]:
        monkeypatch.setattr(sys, "argv", [str(script)])
        return list(driver_start.of_command("run", []).program)

    def test_a_script_that_the_path_does_not_find_is_named_by_its_address(self, project, monkeypatch):
        assert self.program(monkeypatch, project / ".venv/bin/tidegauge") == [".venv/bin/tidegauge"]

    def test_a_script_that_the_path_finds_is_named_by_its_name(self, project, monkeypatch):
        monkeypatch.setenv("PATH", str(project / ".venv/bin"))

        assert self.program(monkeypatch, project / ".venv/bin/tidegauge") == ["tidegauge"]
        assert self.program(monkeypatch, "tidegauge") == ["tidegauge"]

    def test_a_module_is_run_by_its_interpreter(self, project, monkeypatch):
        assert self.program(monkeypatch, "tidegauge") == [".venv/bin/python", "-m", "tidegauge"]

    def test_manage_py_is_named_only_where_it_was_used(self, project, monkeypatch):
        assert self.program(monkeypatch, "manage.py") == [".venv/bin/python", "manage.py"]


class TestUnit:
    @pytest.mark.parametrize("executed", ["", "1"])
    def test_a_unit_that_has_not_executed_this_process_is_left_alone(self, monkeypatch, executed):
        monkeypatch.setenv("SYSTEMD_EXEC_PID", executed)

        assert driver_start.of_command("run", []).unit == ""

    @pytest.mark.parametrize(
        ("group", "unit"),
        [
            ("0::/system.slice/system-tidegauge.slice/tidegauge@shop.service\n", "tidegauge@shop.service"),
            ("0::/user.slice/user-1.slice/user@1.service/app.slice/shop.service\n", "user:shop.service"),
            ("0::/\n", ""),
        ],
    )
    def test_the_unit_is_read_from_the_control_group(self, monkeypatch, group, unit):
        monkeypatch.setenv("SYSTEMD_EXEC_PID", str(os.getpid()))
        monkeypatch.setattr(Path, "read_text", lambda *_, **__: group)

        assert driver_start.of_command("run", []).unit == unit
