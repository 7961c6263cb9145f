import stat
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.core.exceptions import ImproperlyConfigured

from webapp.core.installation import kept_secret_key


def test_a_key_is_made_once_and_only_its_owner_can_read_it(tmp_path):
    path = tmp_path / "data" / "secret_key"

    first = kept_secret_key(path)

    assert kept_secret_key(path) == first
    assert len(first) >= 50
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["secret_key"]


def test_processes_that_start_at_once_get_the_same_key(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        keys = set(pool.map(kept_secret_key, [tmp_path / "secret_key"] * 8))

    assert len(keys) == 1


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path):
    (tmp_path / "file").touch()

    with pytest.raises(ImproperlyConfigured, match="set SECRET_KEY, or TIDEMARK_HOME"):
        kept_secret_key(tmp_path / "file" / "secret_key")
