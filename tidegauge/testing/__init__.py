"""Tests pipelines: rows in, states out, with crashes and replays, on a real database and a real Spark.

    from tidegauge.testing import Crash, run

    def test_a_crash_counts_nothing_twice():
        result = run(orders("unused"), [[{"product": "tea"}], Crash(), [{"product": "tea"}]])
        assert result["orders_by_product"]["tea"] == {"orders": 2}

For pytest, `pytest_plugins = ["tidegauge.testing.fixtures"]` in the top conftest.py adds fixtures for the servers, the
session and `tidegauge_run`. Only these need pytest. See docs/testing.md.
"""

from tidegauge.state_backends.extras import naming_the_extra

with naming_the_extra():
    from tidegauge.testing.checks import Difference, DifferenceError
    from tidegauge.testing.run import BatchFigures, RefusedInput, Result, Run, run
    from tidegauge.testing.state import State
    from tidegauge.testing.steps import Advance, Compact, Crash, Expire, Replay, Restart

__all__ = [
    "Advance",
    "BatchFigures",
    "Compact",
    "Crash",
    "Difference",
    "DifferenceError",
    "Expire",
    "RefusedInput",
    "Replay",
    "Restart",
    "Result",
    "Run",
    "State",
    "run",
]
