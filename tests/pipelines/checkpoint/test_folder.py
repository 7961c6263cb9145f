"""The folder of a checkpoint, as it is given and as the ledger reads it."""

import re
from pathlib import Path

import pytest

from tests.recovery_page import message_of
from tidegauge.pipelines.checkpoint.files import checkpoint_folder
from tidegauge.pipelines.driver.driver import RunOptions
from tidegauge.pipelines.errors import PipelineError
from tidegauge.pipelines.jobs.word_count import word_count


@pytest.mark.parametrize(
    "given", ["/data/ck", "file:///data/ck", "file:/data/ck", "FILE:///data/ck", "file://localhost/data/ck"]
)
def test_a_checkpoint_may_be_a_path_or_a_uri_of_this_machine(given):
    assert checkpoint_folder(given) == Path("/data/ck")
    assert RunOptions(given).checkpoint == Path("/data/ck")


def test_a_path_that_went_through_path_is_still_a_uri():
    assert checkpoint_folder(Path("file:///data/ck")) == Path("/data/ck")
    assert checkpoint_folder("relative/ck") == Path("relative/ck")


def test_a_folder_of_another_machine_is_refused_by_name():
    with pytest.raises(PipelineError) as caught:
        checkpoint_folder("file://host/ck")

    assert str(caught.value) == (
        "checkpoint 'file://host/ck': a file: URI names a folder of this machine, as 'file:///path'; mount the file "
        "system of the other one, and give the path where it is mounted"
    )
    assert re.search(message_of("A checkpoint that cannot be reached", 4), str(caught.value))


@pytest.mark.spark
def test_the_ledger_has_the_offsets_of_a_checkpoint_that_is_given_as_a_uri(workspace):
    workspace.land("1.txt", "dog")
    folder = workspace.checkpoint
    workspace.checkpoint = Path(folder.as_uri())

    workspace.run(word_count(workspace.input))

    assert workspace.rows("SELECT offsets FROM tidegauge.batch") == [([{"logOffset": 0}],)]
    assert (folder / "offsets" / "0").exists()
