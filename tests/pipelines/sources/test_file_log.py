"""Which files have been taken is read from Spark's log, compacted or not, and only what is new of it."""

import json

from pipelines.sources.files import ProcessedFiles


def note(checkpoint, entry, *names):
    log = checkpoint / "sources" / "0"
    log.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"path": f"file:///in/{name}", "timestamp": 1, "batchId": 0}) for name in names]
    (log / entry).write_text("\n".join(["v1", *lines]))


def test_nothing_is_taken_before_the_first_batch(tmp_path):
    assert ProcessedFiles(tmp_path).names() == set()


def test_names_come_from_batches_and_from_the_compacted_log(tmp_path):
    processed = ProcessedFiles(tmp_path)
    note(tmp_path, "0", "a.json")
    note(tmp_path, ".0.crc", "not-a-log.json")

    first = set(processed.names())
    note(tmp_path, "9.compact", "a.json", "b%20c.json")
    note(tmp_path, "10", "d.json")

    assert first == {"a.json"}
    assert processed.names() == {"a.json", "b c.json", "d.json"}


def test_what_was_read_is_remembered_when_spark_drops_it(tmp_path):
    processed = ProcessedFiles(tmp_path)
    note(tmp_path, "0", "a.json")
    processed.names()
    (tmp_path / "sources" / "0" / "0").unlink()
    note(tmp_path, "1", "b.json")

    assert processed.names() == {"a.json", "b.json"}
