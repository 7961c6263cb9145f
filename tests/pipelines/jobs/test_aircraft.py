from collections import defaultdict

import pytest

from tidegauge.pipelines.demo import lay_out, read_flights
from tidegauge.pipelines.jobs.aircraft import aircraft

pytestmark = pytest.mark.spark

DAYS = ("2013-01-01", "2013-01-02", "2013-02-08")  # a storm: hundreds of cancelled flights, many without a plane


@pytest.fixture(scope="module")
def year(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "flights"
    lay_out(folder)
    return folder


def test_planes_and_days_equal_a_recount_and_flights_without_a_plane_are_dead_letters(workspace, year):
    for day in DAYS:
        workspace.land(f"{day}.jsonl", *(year / f"{day}.jsonl").read_text().splitlines())
    flown = [flight for flight in read_flights() if flight["day"] in DAYS]

    workspace.run(aircraft(workspace.input))

    planes = defaultdict(list)
    for flight in flown:
        planes[flight["tailnum"]].append(flight)
    without = planes.pop(None)
    stored = workspace.values("aircraft")
    assert {plane: (value["flights"], value["miles"]) for plane, value in stored.items()} == {
        plane: (len(flights), sum(flight["distance"] for flight in flights)) for plane, flights in planes.items()
    }
    letters = workspace.rows("SELECT record IS NOT NULL, state, count(*) FROM tidegauge.dead_letter GROUP BY 1, 2")
    assert letters == [(True, "", len(without))]

    counted = [flight for flights in planes.values() for flight in flights]
    storm = [flight for flight in counted if (flight["day"], flight["carrier"]) == (DAYS[-1], "UA")]
    value = workspace.values("delays_by_day")[f"{DAYS[-1]}T00:00:00+00:00", "UA"]
    assert (value["flights"], value["aircraft"]) == (len(storm), len({flight["tailnum"] for flight in storm}))
    delays = sorted(flight["dep_delay"] for flight in storm if flight["dep_delay"] is not None)
    assert delays[0] <= value["minutes"]["0.5"] <= value["minutes"]["0.95"] <= delays[-1]
