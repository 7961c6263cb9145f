"""A pipeline with a reprocess that needs no Spark, and a process that dies between two of its steps."""

import pytest

from tests.pipelines.repair.ledger_reprocess import CountedOnce, Killed
from tests.pipelines.repair.words import words
from tidegauge.pipelines.checkpoint import folder as checkpoint_module
from tidegauge.state_backends.schema import reprocess as record_module


@pytest.fixture
def counted(workspace):
    """Two files, counted by the first declaration."""
    workspace.land("1.txt", "dog cat")
    workspace.land("2.txt", "dog")
    workspace.run(words(workspace.input))
    return workspace


@pytest.fixture
def counted_once(conn, database_url, tmp_path):
    return CountedOnce(conn, database_url, tmp_path)


@pytest.fixture
def killed_at(monkeypatch):
    """Return a function that sets the step before which the process dies; it comes to life again after that."""

    def arm(step):
        armed = [step]

        def before(name):
            if armed and armed[0] == name:
                raise Killed(armed.pop())

        def folders(do, verb):
            def step(folder, *rest):
                if folder.exists():
                    before(f"{verb} {folder.name}")
                do(folder, *rest)

            return step

        def enter(conn, pipeline, phase, after, do=record_module.enter):
            before(f"enter {after}")
            do(conn, pipeline, phase, after)

        monkeypatch.setattr(checkpoint_module, "move", folders(checkpoint_module.move, "move"))
        monkeypatch.setattr(checkpoint_module, "remove", folders(checkpoint_module.remove, "remove"))
        monkeypatch.setattr(record_module, "enter", enter)
        return armed

    return arm
