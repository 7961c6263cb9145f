"""PySpark asks Java once for the classes and methods that every batch needs, and sends lists in few messages."""

import pytest
from py4j.clientserver import ClientServerConnection
from py4j.java_gateway import JVMView
from py4j.protocol import CALL_COMMAND_NAME, REFL_GET_MEMBER_SUB_COMMAND_NAME, REFLECTION_COMMAND_NAME

from tidegauge.pipelines.jobs.word_count import word_count
from tidegauge.pipelines.spark.java_classes import ASKED_FOR

pytestmark = pytest.mark.spark

ASK_FOR_MEMBER = f"{REFLECTION_COMMAND_NAME}{REFL_GET_MEMBER_SUB_COMMAND_NAME}"


@pytest.fixture
def sent(monkeypatch):
    """What PySpark sends to Java."""
    commands = []
    send = ClientServerConnection.send_command
    note = lambda conn, command, *given: commands.append(command) or send(conn, command, *given)  # noqa: E731
    monkeypatch.setattr(ClientServerConnection, "send_command", note)
    return commands


def test_a_batch_asks_for_none_of_them_again_and_runs_one_job(filled, sent, monkeypatch):
    asked = []
    ask = JVMView.__getattr__
    monkeypatch.setattr(JVMView, "__getattr__", lambda jvm, name: asked.append(name) or ask(jvm, name))
    filled.land("2.txt", "cat")
    before = filled.jobs_begun()

    filled.run(word_count(filled.input))

    assert filled.values("words")["cat"] == {"count": 1}
    assert asked, "PySpark finds classes in another way, and this test sees nothing"
    assert [name for name in asked if name in ASKED_FOR or "PySparkCurrentOrigin" in name] == []
    members = [command.split("\n")[1:3] for command in sent if command.startswith(ASK_FOR_MEMBER)]
    assert [member for member in members if member[0].endswith(ASKED_FOR)] == []
    assert filled.jobs_begun() == before + 1


@pytest.mark.parametrize("length", [2, 10, 11, 23])
def test_a_list_arrives_in_its_order_with_ten_items_per_message(spark, sent, length):
    items = [f"item {number}" for number in range(length)]

    arrived = spark.sparkContext._jvm.PythonUtils.toSeq(items)

    calls = [command for command in sent if command.startswith(CALL_COMMAND_NAME)]
    assert arrived.mkString(",") == ",".join(items)
    assert len(calls) == 2 * -(-length // 10)  # List.of for ten items, addAll but for the first ten, and toSeq


def test_the_items_of_a_list_may_be_arrays(spark):
    jvm = spark.sparkContext._jvm
    pair = spark.sparkContext._gateway.new_array(jvm.java.lang.String, 2)

    assert jvm.PythonUtils.toSeq([pair] * 11).size() == 11
