import json
import random
from collections import Counter
from datetime import UTC, datetime

import pytest

from pipelines.jobs.trending import trending
from tests.pipelines.jobs.job_input import opaque, refusing

pytestmark = pytest.mark.spark


def views(seed):
    """A few hundred views of sixty pages over two hours."""
    chance = random.Random(seed)
    pages = chance.choices(range(60), [1 / (n + 5) for n in range(60)], k=300)
    return [{"page": f"/{page}", "at": f"2024-01-01T0{chance.randrange(2)}:30:00Z"} for page in pages]


def recount(*batches):
    """Sort everything: the ten largest counts of each hour, pages of one count by name."""
    counts = Counter((view["at"][:13], view["page"]) for batch in batches for view in batch)
    hours = {hour for hour, _ in counts}
    ranked = sorted(counts.items(), key=lambda found: (-found[1], found[0][1]))
    return {
        hour: [{"page": page, "views": n} for (its_hour, page), n in ranked if its_hour == hour][:10] for hour in hours
    }


def tops(workspace):
    return {
        datetime.fromisoformat(hour).astimezone(UTC).isoformat()[:13]: pages
        for hour, pages in workspace.values("top_pages").items()
    }


def test_the_lists_are_those_of_sorting_everything_also_after_a_crash_and_a_smaller_replay(workspace):
    def run():
        return workspace.run(opaque(trending(workspace.input, files_per_batch=1)))

    batches = [views(seed) for seed in range(3)]
    files = [workspace.land(f"{place}.json", *batch) for place, batch in enumerate(batches[:2])]
    assert run() == [(1, 1), (2, 1)]
    assert tops(workspace) == recount(*batches[:2])

    files.append(workspace.land("2.json", *batches[2]))
    with refusing(workspace.conn, "top_pages"), pytest.raises(Exception, match="failed by the test"):
        run()
    written = workspace.rows("SELECT count(*) > 0 FROM tidemark_state.page_views WHERE txid = 3")
    served_before_the_replay = tops(workspace)
    files[2].write_text("".join(json.dumps(view) + "\n" for view in views(4)[:50]))

    assert run() == [(3, 2)]
    assert written == [(True,)]
    assert served_before_the_replay == recount(*batches[:2])
    assert tops(workspace) == recount(*batches[:2], views(4)[:50])


def test_a_batch_without_views_of_the_leading_pages_does_not_write_their_list(workspace):
    leading = [{"page": f"/{page}", "at": "2024-01-01T00:30:00Z"} for page in range(10) for _ in range(3)]
    workspace.land("1.json", *leading)
    workspace.land("2.json", {"page": "/new", "at": "2024-01-01T00:30:00Z"})

    workspace.run(trending(workspace.input, files_per_batch=1))

    assert workspace.rows("SELECT txid FROM tidemark_state.top_pages") == [(1,)]
