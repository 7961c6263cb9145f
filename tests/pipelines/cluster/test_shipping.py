"""The files that a driver sends to the executors, and the settings that it refuses before Spark starts."""

import zipfile

import pytest

from tidegauge.pipelines.embedded.data_dir import PACKAGE
from tidegauge.pipelines.errors import RuntimeSetupError
from tidegauge.pipelines.spark.session import is_local, pack, project_code, start_session, user_files


def test_a_package_is_shipped_with_the_files_that_its_code_reads_and_without_byte_code(tmp_path):
    packed = zipfile.ZipFile(pack(PACKAGE, tmp_path)).namelist()

    read = {"backends/redis/lua/merge.lua", "schema/migrations/0001_initial.sql"}
    assert {"__init__.py", "pipelines/spark/session.py", *(f"state_backends/{name}" for name in read)} <= set(packed)
    assert not [name for name in packed if name.endswith(".pyc") or name.startswith("webapp")]


def test_a_package_of_the_users_is_shipped_whole(tmp_path):
    (tmp_path / "acme" / "webapp").mkdir(parents=True)
    (tmp_path / "acme" / "webapp" / "steps.py").touch()

    packed = zipfile.ZipFile(pack(tmp_path / "acme", tmp_path / "packed")).namelist()

    assert "webapp/steps.py" in packed


def test_the_user_files_are_those_that_the_variable_names(tmp_path):
    (tmp_path / "steps.py").touch()
    (tmp_path / "more.zip").touch()

    files = user_files({"SPARK_PYFILES": f"{tmp_path}/steps.py, {tmp_path}/more.zip,"})

    assert files == [tmp_path / "steps.py", tmp_path / "more.zip"]
    assert user_files({}) == []


@pytest.mark.parametrize("name", ["absent.py", "notes.txt"])
def test_a_user_file_that_cannot_travel_is_refused_by_name(tmp_path, name):
    (tmp_path / "notes.txt").touch()

    with pytest.raises(RuntimeSetupError) as refused:
        user_files({"SPARK_PYFILES": str(tmp_path / name)})

    assert str(refused.value) == (
        f"SPARK_PYFILES: {str(tmp_path / name)!r} is not an existing .py, .zip, .egg file; "
        "name modules, or zips of packages, separated by commas"
    )


def test_the_code_of_a_pipeline_is_its_package_or_module_in_the_working_directory(tmp_path):
    (tmp_path / "acme").mkdir()
    (tmp_path / "shop.py").touch()
    modules = ["acme.orders", "acme.clicks", "shop", "installed.orders", "tidegauge.pipelines.jobs.word_count"]

    assert project_code(modules, tmp_path) == [tmp_path / "acme", tmp_path / "shop.py"]


@pytest.mark.parametrize("given", ["0", "-2", "lots"])
def test_an_invalid_number_of_tasks_is_refused_before_spark_starts(monkeypatch, given):
    monkeypatch.setenv("SPARK_SHUFFLE_PARTITIONS", given)

    with pytest.raises(RuntimeSetupError, match=f"SPARK_SHUFFLE_PARTITIONS: '{given}' is not a number of tasks"):
        start_session("refused")


@pytest.mark.parametrize(
    ("master", "local"),
    [
        ("local", True),
        ("local[4]", True),
        ("local[*]", True),
        ("local-cluster[2,1,1024]", False),
        ("spark://h:1", False),
    ],
)
def test_only_a_master_in_this_process_is_local(master, local):
    assert is_local(master) == local
