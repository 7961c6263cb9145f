"""The folder of a checkpoint, as it is given and as the ledger reads it."""

import re
from pathlib import Path

import pytest

from pipelines.checkpoint import checkpoint_folder
from pipelines.driver import RunOptions
from pipelines.errors import PipelineError
from pipelines.jobs.word_count import word_count
from tests.recovery_page import message_of


@pytest.mark.parametrize(
    "given", ["/data/ck", "file:///data/ck", "file:/data/ck", "FILE:///data/ck", "file://localhost/data/ck"]
)
def test_a_checkpoint_may_be_a_path_or_a_uri_of_this_machine(given):
    assert checkpoint_folder(given) == Path("/data/ck")
    assert RunOptions(given).checkpoint == Path("/data/ck")


def test_a_path_that_went_through_path_is_still_a_uri():
    assert checkpoint_folder(Path("file:///data/ck")) == Path("/data/ck")
    assert checkpoint_folder("relative/ck") == Path("relative/ck")


@pytest.mark.parametrize("given", ["s3a://bucket/ck", "hdfs://host:8020/ck", "file://host/ck"])
def test_another_scheme_is_refused_by_name(given):
    with pytest.raises(PipelineError) as caught:
        checkpoint_folder(given)

    assert str(caught.value) == (
        f"checkpoint {given!r}: only folders of this machine are supported, as '/path' or 'file:///path'; mount the "
        "file system, and give the path where it is mounted"
    )
    assert re.search(message_of("A checkpoint that is not a folder of this machine"), str(caught.value))


@pytest.mark.spark
def test_the_ledger_has_the_offsets_of_a_checkpoint_that_is_given_as_a_uri(workspace):
    workspace.land("1.txt", "dog")
    folder = workspace.checkpoint
    workspace.checkpoint = Path(folder.as_uri())

    workspace.run(word_count(workspace.input))

    assert workspace.rows("SELECT offsets FROM tidemark.batch") == [([{"logOffset": 0}],)]
    assert (folder / "offsets" / "0").exists()
