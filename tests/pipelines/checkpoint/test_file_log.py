"""Spark's log of files: which files each entry has, in its own file or in a compact one."""

import json
import os
from pathlib import Path

from tidegauge.pipelines.checkpoint.file_log import ProcessedFiles, logged_files, modified_now


def write_log(checkpoint, entry, *names, numbers=None):
    log = checkpoint / "sources" / "0"
    log.mkdir(parents=True, exist_ok=True)
    lines = [
        json.dumps({"path": f"file:///in/{name}", "timestamp": 1, "batchId": number}, separators=(",", ":"))
        for name, number in zip(names, numbers or [0] * len(names), strict=True)
    ]
    (log / entry).write_text("\n".join(["v1", *lines]))
    return log


class TestProcessedFiles:
    """Names come from Spark's log, compacted or not, and each log file is read once."""

    def test_no_file_is_taken_before_the_first_batch(self, tmp_path):
        assert ProcessedFiles(tmp_path).names() == set()

    def test_names_come_from_batches_and_from_the_compacted_log(self, tmp_path):
        processed = ProcessedFiles(tmp_path)
        write_log(tmp_path, "0", "a.json")
        write_log(tmp_path, ".0.crc", "not-a-log.json")

        first = set(processed.names())
        write_log(tmp_path, "9.compact", "a.json", "b%20c.json")
        write_log(tmp_path, "10", "d.json")

        assert first == {"a.json"}
        assert processed.names() == {"a.json", "b c.json", "d.json"}

    def test_what_was_read_is_remembered_when_spark_drops_it(self, tmp_path):
        processed = ProcessedFiles(tmp_path)
        write_log(tmp_path, "0", "a.json")
        processed.names()
        (tmp_path / "sources" / "0" / "0").unlink()
        write_log(tmp_path, "1", "b.json")

        assert processed.names() == {"a.json", "b.json"}


class TestLoggedFiles:
    """The files of some entries come from their own log files, and from a compact one once those are gone."""

    def test_the_files_of_several_entries_are_found(self, tmp_path):
        write_log(tmp_path, "0", "a.json")
        write_log(tmp_path, "1", "b%20c.json", numbers=[1])
        log = write_log(tmp_path, "2", "d.json", numbers=[2])

        assert logged_files(log, 1, 2) == {Path("/in/b c.json"): 1, Path("/in/d.json"): 1}

    def test_of_a_compact_entry_only_the_lines_of_that_entry_count(self, tmp_path):
        log = write_log(tmp_path, "9.compact", "a.json", "b.json", "c.json", numbers=[1, 9, 19])

        assert logged_files(log, 9, 9) == {Path("/in/b.json"): 1}

    def test_an_entry_that_was_compacted_is_found_in_the_next_compact_one(self, tmp_path):
        write_log(tmp_path, "19.compact", "a.json", "b.json", "c.json", numbers=[1, 8, 19])
        log = write_log(tmp_path, "9.compact", "a.json", "b.json", numbers=[1, 8])

        assert logged_files(log, 8, 8) == {Path("/in/b.json"): 1}

    def test_a_log_that_lacks_an_entry_does_not_say(self, tmp_path):
        log = write_log(tmp_path, "0", "a.json")

        assert logged_files(log, 0, 1) is None


def test_a_file_that_was_rewritten_has_another_time_and_one_that_is_gone_has_the_planned_one(tmp_path):
    path = tmp_path / "a.json"
    path.touch()
    os.utime(path, ns=(1_700_000_000_123_999_999, 1_700_000_000_123_999_999))

    assert modified_now(path, planned=1) == 1_700_000_000_123
    path.unlink()
    assert modified_now(path, planned=1) == 1
