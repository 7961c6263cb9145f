import json
import random
from datetime import UTC, datetime, timedelta

import pytest

from pipelines.jobs.traffic import BY_DAY, BY_HOUR, BY_MINUTE, GRAINS, traffic
from state_backends import StateReader
from tests.pipelines.jobs.job_input import opaque

pytestmark = pytest.mark.spark

START = datetime(2024, 1, 1, 22, 0, tzinfo=UTC)
SPANS = {"1 minute": timedelta(minutes=1), "1 hour": timedelta(hours=1), "1 day": timedelta(days=1)}
KINDS = ("requests", "bytes", "users")


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
        key: (len(group), sum(line["bytes"] for line in group), len({line["user"] for line in group}))
        for key, group in groups.items()
    }


def rows(workspace, spec):
    return {
        (site, datetime.fromisoformat(start).astimezone(UTC)): tuple(value[kind] for kind in KINDS)
        for (site, start), value in workspace.values(spec.name).items()
    }


def assert_coarse_rows_are_their_fine_rows_folded(workspace, fine, coarse, span):
    minutes = rows(workspace, fine)
    reader = StateReader(workspace.conn, fine)
    for key, value in workspace.values(coarse.name).items():
        site, start = key[0], datetime.fromisoformat(key[1])
        within = [minute for minute in minutes if minute[0] == site and start <= minute[1] < start + span]
        [folded] = reader.combine(within).parsed()
        assert folded == {"keys": len(within), "missing": 0, "expired": 0, "value": value}


def test_the_grains_agree_with_a_recount_and_with_each_other_also_after_a_smaller_replay(workspace):
    def run():
        return workspace.run(opaque(traffic(workspace.input, files_per_batch=1)))

    first = requests(1)
    workspace.land("1.json", *first)
    second = workspace.land("2.json", *requests(2))
    assert run() == [(1, 1), (2, 1)]
    workspace.forget_last_commit()
    second.write_text("".join(json.dumps(line) + "\n" for line in requests(3, 20)))

    assert run() == [(2, 2)]

    lines = [*first, *requests(3, 20)]
    for width, spec in GRAINS.items():
        assert rows(workspace, spec) == recount(lines, SPANS[width])
    assert_coarse_rows_are_their_fine_rows_folded(workspace, BY_MINUTE, BY_HOUR, SPANS["1 hour"])
    assert_coarse_rows_are_their_fine_rows_folded(workspace, BY_HOUR, BY_DAY, SPANS["1 day"])


def test_each_grain_is_kept_for_its_own_time():
    assert [spec.ttl for spec in GRAINS.values()] == [timedelta(days=1), timedelta(days=90), None]
