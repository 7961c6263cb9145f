"""The page configuration-as-files.md: its example is applied, and its commands are typed."""

import shlex

import yaml
from django.core.management import call_command

from tests.docs.blocks import DOCS, blocks
from tests.webapp.configuration.test_commands import run
from tidegauge.webapp.configuration import services
from tidegauge.webapp.configuration.kinds import KINDS
from tidegauge.webapp.configuration.notation import parse
from tidegauge.webapp.notify.alerts.models import AlertRule

PAGE = "configuration-as-files.md"


def texts(language: str) -> list[str]:
    return [block.text for block in blocks(language) if block.page == PAGE]


def test_the_commands_apply_the_example(filled, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tidegauge.yaml").write_text(texts("yaml")[0])
    diff, apply, export = (shlex.split(line)[1:] for line in texts("sh")[0].splitlines())

    assert run(*diff)[0] == 1
    call_command(*apply)

    assert run(*diff) == (0, "")
    assert (tmp_path / "secrets.yaml").exists()
    assert AlertRule.objects.get().webhooks.get().name == "ops"
    assert parse(run(*export)[1]) == services.export()


def test_the_example_has_every_kind_and_means_the_same_to_another_parser():
    example = texts("yaml")[0]

    assert parse(example).keys() == KINDS.keys()
    assert yaml.safe_load(example) == parse(example)


def test_the_page_lists_every_field():
    page = (DOCS / PAGE).read_text()

    for kind, each in KINDS.items():
        row = next(line for line in page.splitlines() if line.startswith(f"| `{kind}` |"))
        assert [field for field in each.fields if f"`{field}`" not in row] == []
