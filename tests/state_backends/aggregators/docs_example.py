"""The aggregator that docs/aggregators.md shows how to write."""

import re
from contextlib import contextmanager
from pathlib import Path

from tidegauge.state_backends.aggregators import AGGREGATORS

PAGE = Path(__file__).parents[3] / "docs" / "aggregators.md"


@contextmanager
def documented_reducer():
    """Run the example with its registration, which is undone when the context ends."""
    [example] = re.findall(r"```python\n(from tidegauge import AGGREGATORS.*?)```", PAGE.read_text(), re.DOTALL)
    names = {}
    exec(example, names)  # noqa: S102
    try:
        yield names["Recent"]
    finally:
        del AGGREGATORS["recent"]
