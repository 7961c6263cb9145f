"""Each test belongs to one tier."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.harness.tiers import REST_FOLDERS, is_quick, pytest_ignore_collect


def item(path: Path, root: Path, *marks: str) -> SimpleNamespace:
    found = [SimpleNamespace(name=mark) for mark in marks]
    return SimpleNamespace(
        path=path, fixturenames=(), config=SimpleNamespace(rootpath=root), iter_markers=lambda: found,
        get_closest_marker=lambda name: name in marks or None,
    )  # fmt: skip


@pytest.mark.parametrize("folder", REST_FOLDERS)
def test_what_make_test_does_not_collect_is_in_the_rest(folder, tmp_path):
    path = tmp_path / folder / "test_it.py"
    quick = SimpleNamespace(rootpath=tmp_path, option=SimpleNamespace(tier="quick"))

    assert pytest_ignore_collect(path, quick)
    assert not is_quick(item(path, tmp_path))
    assert not is_quick(item(path, tmp_path, "core"))


def test_marks_decide_elsewhere(tmp_path):
    path = tmp_path / "tests/test_it.py"

    assert [is_quick(item(path, tmp_path, *marks)) for marks in ([], ["spark"], ["spark", "core"])] == [
        True,
        False,
        True,
    ]
