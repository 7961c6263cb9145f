"""A reprocess whose sources have less than the states have counted is refused, unless that is accepted."""

from pathlib import Path

import pytest

from tests.pipelines.repair.words import LETTERS, reprocess, words
from tests.recovery_page import message_of
from tidegauge.pipelines.sources.files.formats import JsonFiles
from tidegauge.pipelines.sources.kafka.topics import KafkaTopics
from tidegauge.pipelines.sources.simple import Rate
from tidegauge.state_backends.errors import ShorterInputError
from tidegauge.state_backends.schema.counted import CountedSource

OLD = {"dog": {"count": 2}, "cat": {"count": 1}}


def shadows(workspace):
    return workspace.rows("SELECT name FROM tidegauge.pipeline WHERE name LIKE '%@reprocess'")


@pytest.mark.spark
def test_what_goes_missing_meanwhile_stops_the_swap_and_leaves_both_as_they_are(counted, monkeypatch):
    """As by a retention that runs for as long as the reprocess does."""
    monkeypatch.setattr("tidegauge.pipelines.sources.files.formats.Folder.missing", lambda self, spark, counted: "")
    (counted.input / "1.txt").unlink()

    seen = message_of("A reprocess would count less than the states have counted", 2)

    with pytest.raises(ShorterInputError, match=seen):
        reprocess(counted, words(counted.input, LETTERS)).run()
    refused = counted.values("words"), shadows(counted)
    assert reprocess(counted, words(counted.input, LETTERS), accept_shorter=True).run()

    assert refused == (OLD, [("word_count@reprocess",)])
    assert counted.values("words") == {"dog": {"letters": 3}}


@pytest.mark.spark
def test_a_file_that_only_the_driver_has_counted_meanwhile_is_not_missing(counted):
    def count_another(batch):
        if batch.txid % 10 == 2:
            counted.land("3.txt", "cow")
            counted.run(words(counted.input))

    assert reprocess(counted, words(counted.input, LETTERS), count_another).run()


def test_a_topic_that_is_read_from_its_latest_message_would_count_nothing_again():
    source = KafkaTopics("localhost:9092", "orders", starting="latest")

    missing = source.missing(None, CountedSource("partitions", {"orders/0": [0, 15]}, {"orders": {"0": 15}}))

    assert missing == "kafka orders is read from the latest message on, so nothing that was counted is read again"


def test_a_source_without_replay_would_count_nothing_again():
    assert "cannot be read again from its start" in Rate(1).missing(None, CountedSource())


def test_files_in_a_folder_that_is_given_relative_to_the_working_directory_are_not_missing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in box").mkdir()
    (tmp_path / "in box" / "1.json").touch()
    source = JsonFiles(Path("in box"), schema="n int")

    assert source.missing(None, CountedSource("files", files=lambda: ["1.json"])) == ""
    assert "'2.json'" in source.missing(None, CountedSource("files", files=lambda: ["1.json", "2.json"]))
