from types import SimpleNamespace

import pytest

from tests.webapp.dashboard.page_text import text
from webapp.dashboard.attention import urgency, worst_first


def pipeline(name: str, status: str, **more) -> SimpleNamespace:
    plain = {"failures": 0, "dropped": 0, "pending": None, "reprocess": None}
    return SimpleNamespace(name=name, status=status, **(plain | more))


def test_the_most_urgent_come_first_and_equals_by_name():
    found = [pipeline("d", "running"), pipeline("c", "running"), pipeline("b", "stopped"), pipeline("a", "paused")]
    lost = pipeline("z", "lost")

    assert [shown.name for shown in worst_first([*found, lost])] == ["z", "a", "c", "d", "b"]


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, "good"),
        ({"failures": 1}, "watch"),
        ({"dropped": 3}, "watch"),
        ({"pending": {"count": 1, "alarm": "the slot is full"}}, "watch"),
        ({"reprocess": SimpleNamespace(status="failed")}, "bad"),
        ({"reprocess": SimpleNamespace(status="running")}, "good"),
    ],
)
def test_a_running_pipeline_may_need_attention(more, expected):
    assert urgency(pipeline("flights", "running", **more)) == expected


def test_the_overview_marks_and_counts_what_needs_attention(filled, reader):
    healthy = reader.get("/")
    filled.die()
    lost = reader.get("/")

    assert "need" not in text(healthy).partition("States")[0]
    assert "Pipelines 1 needs attention flights lost" in text(lost)
    assert b'class="panel pipeline is-bad"' in lost.content
