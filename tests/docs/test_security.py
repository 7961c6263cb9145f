"""The threat model names tests that exist."""

import re

from tidegauge.pipelines.embedded.data_dir import REPOSITORY

PAGE = (REPOSITORY / "docs" / "security.md").read_text()


def test_every_test_that_the_threat_model_names_exists():
    named = re.findall(r"`(tests/[^`]+)`", PAGE)

    assert len(named) > 20
    assert [path for path in named if not (REPOSITORY / path).exists()] == []


def test_what_is_kept_says_by_what_and_tested_where():
    rows = PAGE.split("## Protected")[1].split("## Not protected")[0].strip().splitlines()[2:]

    assert [row for row in rows if "`tests/" not in row.split("|")[4]] == []
