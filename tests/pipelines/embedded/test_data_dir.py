import os

import pytest

from tidegauge.pipelines.embedded.data_dir import REPOSITORY, data_dir, last_lines, password, write_private
from tidegauge.pipelines.errors import RuntimeSetupError


def test_the_environment_names_the_data_folder(tmp_path):
    home = data_dir({"TIDEGAUGE_HOME": str(tmp_path / "some" / "where")})

    assert home == tmp_path / "some" / "where"
    assert home.is_dir()


def test_in_a_checkout_it_is_beside_manage_py(tmp_path, monkeypatch):
    (tmp_path / "manage.py").write_text("")
    monkeypatch.setattr("tidegauge.pipelines.embedded.data_dir.REPOSITORY", tmp_path)

    assert data_dir({}) == tmp_path / ".tidegauge"
    assert (REPOSITORY / "manage.py").exists()


def test_of_installed_packages_it_is_in_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("tidegauge.pipelines.embedded.data_dir.REPOSITORY", tmp_path / "site-packages")
    monkeypatch.chdir(tmp_path)

    assert data_dir({}) == tmp_path / ".tidegauge"


def test_a_data_folder_that_cannot_be_created_is_named(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(RuntimeSetupError) as raised:
        data_dir({"TIDEGAUGE_HOME": str(tmp_path / "file" / "home")})

    assert str(raised.value) == (
        f"data folder '{tmp_path}/file/home': cannot be created (Not a directory); "
        "set TIDEGAUGE_HOME to a folder that you can write to"
    )


def test_others_may_enter_roots_data_folder_but_read_no_private_file(tmp_path):
    home = data_dir({"TIDEGAUGE_HOME": str(tmp_path / "home")})

    write_private(home / "secret", "hush")

    assert home.stat().st_mode & 0o777 == (0o711 if os.geteuid() == 0 else 0o700)
    assert (home / "secret").stat().st_mode & 0o777 == 0o600
    assert (home / "secret").read_text() == "hush"


def test_a_password_is_created_once(tmp_path):
    first = password(tmp_path / "password")

    assert len(first) >= 32
    assert password(tmp_path / "password") == first


def test_the_end_of_a_log_fits_an_error_message(tmp_path):
    (tmp_path / "log").write_text("one\ntwo\n  three\nfour\n")

    assert last_lines(tmp_path / "log") == "two | three | four"
    assert last_lines(tmp_path / "nothing") == "it left no log"
