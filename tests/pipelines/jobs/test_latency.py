import math
import random
from collections import Counter

import pytest

from tidegauge.pipelines.jobs.latency import LATENCY, latency
from tidegauge.state_backends import StateReader

pytestmark = pytest.mark.spark

BATCHES, REQUESTS = 2, 6_000
RANK_ERROR = 0.0133  # of a quantile, with 99 % confidence; see Quantiles


def requests():
    chance = random.Random(11)
    return [
        {
            "endpoint": chance.choice(["/a", "/b"]),
            "user": f"u{chance.randrange(4_000)}",
            "status": chance.choices([200, 404, 500], [90, 8, 2])[0],
            "millis": chance.lognormvariate(3, 1),
        }
        for _ in range(REQUESTS)
    ]


def assert_is_of(value, lines):
    """Exact where a measure is exact, else within three of its stated errors."""
    users, millis = len({line["user"] for line in lines}), sorted(line["millis"] for line in lines)
    assert value["requests"] == len(lines)
    assert abs(value["users"] / users - 1) <= 3 * 1.04 / math.sqrt(2**12)
    for share, found in value["millis"].items():
        assert abs((millis.index(found) + 1) / len(millis) - float(share)) <= 3 * RANK_ERROR
    assert [(found["item"], found["count"]) for found in value["statuses"]] == [
        (str(status), times) for status, times in Counter(line["status"] for line in lines).most_common()
    ]


def test_every_measure_is_within_its_bounds_per_endpoint_and_for_all_of_them_combined(workspace):
    lines = requests()
    for batch in range(BATCHES):
        workspace.land(f"{batch}.json", *lines[batch::BATCHES])

    workspace.run(latency(workspace.input, files_per_batch=1))

    values = workspace.values("latency")
    assert set(values) == {"/a", "/b"}
    for endpoint, value in values.items():
        assert_is_of(value, [line for line in lines if line["endpoint"] == endpoint])
    [together] = StateReader(workspace.conn, LATENCY).combine([("/a",), ("/b",)]).parsed()
    assert_is_of(together["value"], lines)
