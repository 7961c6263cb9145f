"""Files of tests are kept in memory where it has room for them."""

import os
import tempfile
from types import SimpleNamespace

import pytest

from tests.harness.servers import NEEDED, keep_files_in_memory


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """Tell which folder temporary files are in, with a file system of so many free bytes and these flags."""

    def folder(free, flags=0):
        monkeypatch.setattr(tempfile, "tempdir", None)
        monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=NEEDED))
        found = SimpleNamespace(f_bavail=free, f_frsize=1, f_flag=flags)
        monkeypatch.setattr(os, "statvfs", lambda path: found)
        keep_files_in_memory(tmp_path)
        return tempfile.gettempdir()

    monkeypatch.setenv("TMPDIR", "/")
    monkeypatch.delenv("TMPDIR")
    return folder


def test_a_folder_in_memory_with_room_is_taken(folder, tmp_path):
    assert folder(NEEDED) == str(tmp_path)


@pytest.mark.parametrize(("free", "flags"), [(NEEDED - 1, 0), (NEEDED, os.ST_NOEXEC)], ids=["small", "no programs"])
def test_one_that_is_too_small_or_runs_no_programs_is_not(folder, tmp_path, free, flags):
    assert folder(free, flags) != str(tmp_path)


def test_tmpdir_is_kept(folder, monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path.parent))

    assert folder(NEEDED) == str(tmp_path.parent)
