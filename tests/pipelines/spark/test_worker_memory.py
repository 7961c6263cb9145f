import gc

from pyspark.sql.types import StructType

from tidegauge.pipelines.batch import sink


def test_a_worker_exempts_what_it_has_imported_from_garbage_collection_at_its_first_task(monkeypatch):
    """Not later, because then garbage that tasks have left would stay, too."""
    frozen = []
    monkeypatch.setattr(gc, "get_freeze_count", lambda: len(frozen))
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append("once"))
    monkeypatch.setattr(sink, "_results", lambda emits: StructType())  # a type by its name needs a session

    for _ in range(2):
        assert list(sink.run_partition([], [])(iter([]))) == []

    assert frozen == ["once"]
