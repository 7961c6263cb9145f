"""What GitHub runs is what a developer runs, and a tag is released only if versions and changelog agree."""

import re

import pytest
import yaml

from tidegauge.pipelines.embedded.data_dir import REPOSITORY
from tools.release_check import problems

GITHUB = REPOSITORY / ".github"
WORKFLOWS = {file.name: yaml.safe_load(file.read_text()) for file in (GITHUB / "workflows").iterdir()}
STEPS = [step for workflow in WORKFLOWS.values() for job in workflow["jobs"].values() for step in job["steps"]]
TARGETS = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))


def test_every_command_of_a_workflow_is_a_target_of_the_makefile():
    commands = [step["run"].split() for step in STEPS if "run" in step]

    assert {"test", "check", "lint", "dist"} <= {word for words in commands for word in words}
    assert [words for words in commands if words[0] != "make" or not set(words[1:]) <= TARGETS] == []


def test_every_action_is_pinned_to_a_version():
    used = [step["uses"] for step in STEPS if "uses" in step]

    assert [action for action in used if not re.fullmatch(r"[\w-]+/[\w-]+@v\d+(\.\d+)*", action)] == []


def test_only_the_job_that_publishes_may_write():
    for name, workflow in WORKFLOWS.items():
        assert workflow["permissions"] == {"contents": "read"}, name
        for job, declared in workflow["jobs"].items():
            assert ("permissions" in declared) == (job == "publish"), (name, job)


def test_pythons_of_the_matrix_are_those_that_the_project_names():
    classifiers = re.findall(r"Python :: (3\.\d+)", (REPOSITORY / "pyproject.toml").read_text())

    assert WORKFLOWS["test.yml"]["jobs"]["test"]["strategy"]["matrix"]["python"] == classifiers


def test_what_dependabot_and_issue_forms_name_exists():
    for update in yaml.safe_load((GITHUB / "dependabot.yml").read_text())["updates"]:
        assert (REPOSITORY / update["directory"].lstrip("/")).is_dir()
    for file in (GITHUB / "ISSUE_TEMPLATE").glob("[!c]*.yml"):
        form = yaml.safe_load(file.read_text())
        fields = [field["id"] for field in form["body"] if field["type"] != "markdown"]
        assert form["name"]
        assert form["description"]
        assert len(set(fields)) == len(fields) > 0


@pytest.fixture
def release(tmp_path):
    (tmp_path / "tidegauge").mkdir()
    (tmp_path / "tidegauge" / "__init__.py").write_text('__version__ = "1.2.3"\n')
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n\nNothing yet.\n\n## 1.2.3\n\n- All.\n")
    (tmp_path / "pyproject.toml").write_text('[project.urls]\nRepository = "https://forge.example/shop/tidegauge"\n')
    return tmp_path


def test_a_tag_whose_version_and_changelog_agree_can_be_released(release):
    assert list(problems("v1.2.3", release)) == []


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("tidegauge/__init__.py", "1.2.3", "1.2.4", "tag 'v1.2.3' is not 'v1.2.4'"),
        ("CHANGELOG.md", "Nothing yet.", "- A change.", "CHANGELOG.md has unreleased changes"),
        ("CHANGELOG.md", "## 1.2.3", "## 1.2.2", "CHANGELOG.md has no section '## 1.2.3'"),
        ("pyproject.toml", "shop", "OWNER", "replace OWNER"),
    ],
)
def test_what_is_missing_for_a_release_is_said(release, file, old, new, said):
    text = (release / file).read_text()
    (release / file).write_text(text.replace(old, new))

    assert said in next(problems("v1.2.3", release))
