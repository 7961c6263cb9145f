"""PySpark asks Java once for the classes that every batch needs."""

import pytest
from py4j.java_gateway import JVMView

from tidegauge.pipelines.jobs.word_count import word_count
from tidegauge.pipelines.spark.java_classes import ASKED_FOR

pytestmark = pytest.mark.spark


def test_a_batch_asks_for_none_of_them_again(filled, monkeypatch):
    asked = []
    ask = JVMView.__getattr__
    monkeypatch.setattr(JVMView, "__getattr__", lambda jvm, name: asked.append(name) or ask(jvm, name))
    filled.land("2.txt", "cat")

    filled.run(word_count(filled.input))

    assert filled.values("words")["cat"] == {"count": 1}
    assert asked, "PySpark finds classes in another way, and this test sees nothing"
    assert [name for name in asked if name in ASKED_FOR or "PySparkCurrentOrigin" in name] == []
