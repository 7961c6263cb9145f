"""The overview without pipelines leads to a first one; what it says to type is true."""

import re
from html import unescape
from pathlib import Path

import pytest
from django.core.management import load_command_class

from tests.recovery_page import arguments
from tests.webapp.console.dashboard.page_text import text
from tidegauge.pipelines.driver.discovery import find
from tidegauge.pipelines.embedded.data_dir import REPOSITORY
from tidegauge.webapp.console.dashboard.first_run import ways

QUICKSTART = REPOSITORY / "docs" / "quickstart.md"


def words(command: str) -> list[str]:
    """The words of the last line of a command, as Django's command takes them."""
    line = command.splitlines()[-1]
    return arguments(line[line.index("tidegauge ") :])


@pytest.mark.parametrize("way", ways(), ids=lambda way: way.name)
def test_its_commands_are_read_by_the_command_line(way):
    name, *options = words(way.command)

    parser = load_command_class("tidegauge.webapp.commands", name).create_parser("tidegauge", name)

    assert parser.parse_args(options)


def test_the_pipeline_of_the_folder_is_an_example(tmp_path):
    _, name, _, folder = words(ways()[1].command)

    assert find(name).pipeline(folder=tmp_path / folder).name == name


@pytest.mark.parametrize("way", [way for way in ways() if way.code], ids=lambda way: way.name)
def test_its_code_is_that_of_the_documentation_and_declares_the_pipeline(way, tmp_path: Path, monkeypatch):
    assert f"```python\n# shop/{way.file}\n{way.code}```" in QUICKSTART.read_text()
    (tmp_path / way.file).write_text(way.code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    assert find(words(way.command)[1]).pipeline().name == way.name.replace("kafka", "clicks").replace("table", "stock")


def test_an_installation_has_the_command_tidegauge(settings, tmp_path):
    settings.BASE_DIR = tmp_path

    assert ways()[0].command == "tidegauge demo --port 8001"


def test_every_command_and_file_can_be_copied(db, reader):
    html = reader.get("/").content.decode()

    copied = {
        place: unescape(found)
        for place, found in re.findall(r'<pre class="code" id="([^"]*)"[^>]*>(.*?)</pre>', html, re.S)
    }
    assert {f"#{place}" for place in copied} == set(re.findall(r'data-copy="([^"]*)"', html))
    assert {way.command for way in ways()} | {way.code for way in ways() if way.code} == set(copied.values())


@pytest.mark.parametrize("page", ["/", "/pipelines/flights/", "/states/flights_by_carrier/"])
def test_pages_with_figures_explain_the_terms(filled, reader, page):
    shown = text(reader.get(page))

    assert "What txid, lag and opaque mean" in shown
    assert "How long the oldest input" in shown
