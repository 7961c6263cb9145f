"""Warnings where people connect from elsewhere without HTTPS, and a place in a document for every setting."""

import re

import pytest
from django.core.checks import run_checks

from tidegauge.pipelines.embedded.data_dir import REPOSITORY
from tidegauge.webapp.core.checks import log_warnings


@pytest.fixture
def reached(settings):
    def reached(**values):
        values = {"HTTPS": False, "BEHIND_PROXY": False, "ALLOWED_HOSTS": ["localhost"], "DEBUG": False} | values
        for name, value in values.items():
            setattr(settings, name, value)
        return [each.id for each in run_checks() if each.id.startswith("tidegauge")]

    return reached


LOCAL = ["localhost", "127.0.0.1", "[::1]", "web", "events"]


def test_an_installation_of_one_machine_or_with_https_is_fine(reached):
    assert reached(ALLOWED_HOSTS=LOCAL) == []
    assert reached(ALLOWED_HOSTS=["tidegauge.example"], BEHIND_PROXY=True, HTTPS=True) == []


def test_a_proxy_without_https_is_warned_of(reached):
    assert reached(BEHIND_PROXY=True) == ["tidegauge.W001"]


@pytest.mark.parametrize("host", ["tidegauge.example", "*", ".example.com", "10.0.0.5"])
def test_a_host_name_of_elsewhere_without_https_is_warned_of(reached, host):
    assert reached(ALLOWED_HOSTS=[*LOCAL, host]) == ["tidegauge.W002"]
    assert reached(ALLOWED_HOSTS=[*LOCAL, host], DEBUG=True) == []


def test_a_server_process_logs_the_warnings(reached, caplog):
    reached(BEHIND_PROXY=True)

    log_warnings()

    assert "TIDEGAUGE_PROXIES is set and TIDEGAUGE_HTTPS is off (tidegauge.W001): set " in caplog.text


# The names of variables that are read where they are named, and of those that a constant names.
READ = re.compile(r"""(?:\benv\.\w+\(\s*|environ\.get\(|environ\[|^[A-Z_]+ = )"([A-Z]+(?:_[A-Z]+)*)\"""", re.MULTILINE)
NO_SETTINGS = {
    "CONTENT_LENGTH", "HTTP_ORIGIN", "PATH_INFO", "QUERY_STRING", "REQUEST_METHOD",  # of a request
    "SYSTEMD_EXEC_PID",  # set by systemd
    "PATH", "PYTHONPATH", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP",  # set for programs that are started
    "DENY", "UTC",  # constants of other kinds
    "KAFKA_SERVERS",  # of an example
}  # fmt: skip


def test_every_setting_from_the_environment_is_on_the_page_of_settings_and_on_the_page_that_explains_it():
    files = [
        file for folder in ("state_backends", "pipelines", "webapp") for file in (REPOSITORY / folder).rglob("*.py")
    ]
    read = sorted(set(re.findall(READ, "".join(file.read_text() for file in files))) - NO_SETTINGS)
    pages = {file.name: file.read_text() for file in (REPOSITORY / "docs").glob("*.md")}
    lines = [line for line in pages["settings.md"].splitlines() if line.startswith("| `")]
    explained = {
        name: pages[re.findall(r"\]\(([\w-]+\.md)", line)[-1]]
        for line in lines
        for name in re.findall(r"`([A-Z_]+)`", line)
    }

    assert "TIDEGAUGE_HTTPS" in read
    assert [name for name in read if name not in explained] == []
    assert [name for name in read if not re.search(rf"`{name}\b", explained[name])] == []
