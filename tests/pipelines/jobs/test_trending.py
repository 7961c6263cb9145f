import random
from collections import Counter
from pathlib import Path

import pytest

from tidegauge.pipelines.jobs.trending import trending
from tidegauge.testing import Crash, Replay

pytestmark = pytest.mark.spark


def views(seed):
    """A few hundred views of sixty pages over two hours."""
    chance = random.Random(seed)
    pages = chance.choices(range(60), [1 / (n + 5) for n in range(60)], k=300)
    return [{"page": f"/{page}", "at": f"2024-01-01T0{chance.randrange(2)}:30:00Z"} for page in pages]


def recount(views):
    """Sort everything: the ten largest counts of each hour, pages of one count by name."""
    counts = Counter((view["at"][:13], view["page"]) for view in views)
    ranked = sorted(counts.items(), key=lambda found: (-found[1], found[0][1]))
    return {
        f"{hour}:00Z": [{"page": page, "views": n} for (its_hour, page), n in ranked if its_hour == hour][:10]
        for hour in {hour for hour, _ in counts}
    }


def test_the_lists_are_those_of_sorting_everything_also_after_a_crash_and_a_smaller_replay(tidegauge_run):
    batches = [views(seed) for seed in range(3)]

    result = tidegauge_run(
        trending(Path("views")),
        [*batches, Crash("mid_write"), Replay(views(4)[:50])],
        expected={"top_pages": recount},
    )

    assert result.batches[-1].attempts == 2


def test_a_batch_without_views_of_the_leading_pages_does_not_write_their_list(tidegauge_run):
    leading = [{"page": f"/{page}", "at": "2024-01-01T00:30:00Z"} for page in range(10) for _ in range(3)]
    other = [{"page": "/new", "at": "2024-01-01T00:30:00Z"}]

    result = tidegauge_run(trending(Path("views")), [leading, other])

    assert result.conn.execute("SELECT txid FROM tidegauge_state.top_pages").fetchall() == [(1,)]
