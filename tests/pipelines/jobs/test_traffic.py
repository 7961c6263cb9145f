import random
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from tidegauge.pipelines.jobs.traffic import BY_DAY, BY_HOUR, BY_MINUTE, GRAINS, traffic
from tidegauge.state_backends import StateReader
from tidegauge.testing import Replay

pytestmark = pytest.mark.spark

START = datetime(2024, 1, 1, 22, 0, tzinfo=UTC)
SPANS = {"1 minute": timedelta(minutes=1), "1 hour": timedelta(hours=1), "1 day": timedelta(days=1)}


def requests(seed, count=250):
    """Three hours from 22:00 on, so over midnight; few users, so that distinct counts are exact."""
    chance = random.Random(seed)
    return [
        {
            "site": chance.choice("ab"),
            "user": f"u{chance.randrange(30)}",
            "bytes": chance.randrange(10_000),
            "millis": float(chance.randrange(100)),
            "at": (START + timedelta(minutes=chance.randrange(0, 180, 9))).isoformat(),
        }
        for _ in range(count)
    ]


def window(time, span):
    return datetime.fromtimestamp(time.timestamp() // span.total_seconds() * span.total_seconds(), UTC)


def recount(lines, span):
    groups = {}
    for line in lines:
        groups.setdefault((line["site"], window(datetime.fromisoformat(line["at"]), span)), []).append(line)
    return {
        key: {
            "requests": len(group),
            "bytes": sum(line["bytes"] for line in group),
            "users": len({line["user"] for line in group}),
        }
        for key, group in groups.items()
    }


def assert_coarse_rows_are_their_fine_rows_folded(result, fine, coarse, span):
    reader = StateReader(result.conn, fine)
    for (site, start), value in result[coarse.name].items():
        within = [(its, minute) for its, minute in result[fine.name] if its == site and start <= minute < start + span]
        [folded] = reader.combine(within).parsed()
        assert folded == {"keys": len(within), "missing": 0, "expired": 0, "value": value}


def test_the_grains_agree_with_a_recount_and_with_each_other_also_after_a_smaller_replay(tidegauge_run):
    expected = {spec.name: partial(recount, span=SPANS[width]) for width, spec in GRAINS.items()}

    result = tidegauge_run(
        traffic(Path("requests")), [requests(1), requests(2), Replay(requests(3, 20))], expected=expected
    )

    assert [batch.attempts for batch in result.batches] == [1, 2]
    assert_coarse_rows_are_their_fine_rows_folded(result, BY_MINUTE, BY_HOUR, SPANS["1 hour"])
    assert_coarse_rows_are_their_fine_rows_folded(result, BY_HOUR, BY_DAY, SPANS["1 day"])


def test_each_grain_is_kept_for_its_own_time():
    assert [spec.ttl for spec in GRAINS.values()] == [timedelta(days=1), timedelta(days=90), None]
