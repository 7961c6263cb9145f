"""Tiles and windows beside a plain list of events: late events, replays, failed attempts and compactions in between."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.state_backends.feed import Feed
from tidegauge.state_backends import (
    Count,
    Max,
    Mean,
    OutOfReachError,
    RangeTooLargeError,
    RetractableMax,
    RowCount,
    SpecError,
    StateReader,
    StateSpec,
    Sum,
)
from tidegauge.state_backends.backends.postgres import tiles as compaction
from tidegauge.state_backends.errors import TilesGoneError
from tidegauge.state_backends.ledger.batch import lock_fence
from tidegauge.state_backends.maintenance import compact
from tidegauge.state_backends.spec.tiles import WIDTHS, floor

START = datetime(2026, 1, 5, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
NOTHING, FOR_EVER = timedelta(), timedelta(days=10_000)

LATE = [NOTHING, NOTHING, NOTHING, 2 * MINUTE, 40 * MINUTE, 3 * HOUR, 30 * HOUR, 4 * DAY]
SNAPS = [lambda at: at, lambda at: at, lambda at: floor(at, HOUR), lambda at: floor(at, DAY)]

VIEWS = StateSpec(
    "views",
    key={"page": "text", "start": "timestamptz"},
    measures={"n": Count(), "most": Max("ms", type="bigint"), "mean": Mean("ms")},
    tiles={"minute": 2 * HOUR, "hour": 2 * DAY, "day": None},
)
IN_PYTHON = replace(VIEWS, name="longest", measures={"most": RetractableMax("ms", type="bigint")})
WHOLE = StateSpec("all_views", key={"start": "timestamptz"}, measures={"n": Count()}, tiles=VIEWS.tiles)


@dataclass(frozen=True)
class Event:
    page: str
    at: datetime
    ms: int


def rows(spec: StateSpec, events: Sequence[Event]) -> list[dict]:
    """Return what Spark makes of a batch: a row for each key and minute."""
    groups: dict[tuple, list[int]] = {}
    for event in events:
        page = (event.page,) if "page" in spec.key else ()
        groups.setdefault((*page, floor(event.at, MINUTE)), []).append(event.ms)
    return [dict(zip(spec.key, key, strict=True)) | partial(spec, ms) for key, ms in groups.items()]


def partial(spec: StateSpec, ms: list[int]) -> dict:
    if spec.measures.keys() == {"most"}:
        return {"most_counts": json.dumps({"added": [str(each) for each in ms], "taken": []})}
    every = {"n": len(ms), "most": max(ms), "mean_sum": float(sum(ms)), "mean_count": len(ms)}
    return {name: every[name] for name in spec.partial_columns}


def folded(spec: StateSpec, events: Sequence[Event]) -> dict:
    ms = [event.ms for event in events]
    every = {"n": len(ms), "most": max(ms, default=None), "mean": sum(ms) / len(ms) if ms else None}
    return {name: every[name] for name in spec.measures}


@dataclass
class Life:
    """A state with tiles and the events of each committed batch."""

    feed: Feed
    dice: random.Random
    now: datetime = START
    batches: list[list[Event]] = field(default_factory=list)
    compared: int = 0

    @property
    def spec(self) -> StateSpec:
        return self.feed.specs[0]

    def events(self) -> list[Event]:
        """Some events, of which half are late, and some begin a tile."""
        return [
            Event(self.dice.choice("ab"), self.dice.choice(SNAPS)(self.now - self.dice.choice(LATE)), n)
            for n in self.dice.sample(range(99), self.dice.randrange(1, 9))
        ]

    def commit(self):
        self.batches.append(events := self.events())
        self.feed.run(rows(self.spec, events))

    def replay_with_other_events(self):
        """The committed batch comes again, because Spark does not know that it was committed."""
        if self.batches:
            self.batches[-1] = events = self.events()
            self.feed.run(rows(self.spec, events), batch_id=self.feed.next_batch_id() - 1)

    def fail_and_retry(self):
        """A batch dies half written; maintenance comes before the attempt that commits."""
        batch_id = self.feed.next_batch_id()
        self.feed.apply(self.feed.begin(batch_id), self.spec, rows(self.spec, self.events()))
        self.dice.choice([self.compact, self.compare, lambda: None])()
        self.batches.append(events := self.events())
        self.feed.run(rows(self.spec, events), batch_id=batch_id)

    def compact(self):
        """Compact, read after each page, and sometimes stop in between."""
        for _ in compact(self.feed.conn, self.spec, keep=FOR_EVER):
            self.compare()
            if not self.dice.randrange(12):
                return

    def pass_time(self):
        self.now += self.dice.choice([MINUTE, 7 * MINUTE, 50 * MINUTE, 5 * HOUR, DAY])

    def compare(self):
        ahead = self.dice.choice([MINUTE, MINUTE, NOTHING, -3 * HOUR, -3 * DAY])
        lengths = self.dice.sample([MINUTE, 5 * MINUTE, HOUR, DAY, 7 * DAY, 40 * DAY], 3)
        keys = [("a",), ("none",), ("b",)] if "page" in self.spec.key else [()]
        past = self.dice.choice([None, None, max(0, len(self.batches) - self.dice.randrange(1, 5))])
        try:
            found, windows = StateReader(self.feed.conn, self.spec).windows(
                keys, lengths, to=self.now + ahead, at_txid=past
            )
        except OutOfReachError:
            return
        assert found.txid == (len(self.batches) if past is None else past)
        counted = [event for batch in self.batches[: found.txid] for event in batch]
        for result, key in zip(found.parsed(), keys, strict=True):
            for value, window, length in zip(result["values"], windows, lengths, strict=True):
                assert window.until - length - WIDTHS[window.granularity] < window.since <= window.until - length
                inside = [
                    event for event in counted if window.since <= event.at < window.until and key in [(), (event.page,)]
                ]
                assert value == pytest.approx(folded(self.spec, inside)), (key, window)
                self.compared += 1

    def step(self):
        acts = [self.commit, self.commit, self.pass_time, self.pass_time, self.fail_and_retry, self.compact]
        self.dice.choice([*acts, self.replay_with_other_events])()
        self.compare()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("spec", [VIEWS, IN_PYTHON, WHOLE], ids=lambda spec: spec.name)
def test_windows_hold_the_committed_events_once_whatever_happens(new_feed, fresh, spec, seed, monkeypatch):
    monkeypatch.setattr(compaction, "PAGE_ROWS", 7)
    monkeypatch.setattr(compaction, "FOLDED_ROWS", 3)
    life = Life(new_feed(fresh(spec)), random.Random(seed))

    for _ in range(60):
        life.step()

    assert life.compared > 150
    assert in_use(life.feed).keys() == {"hour", "day"}


def in_use(feed: Feed) -> dict[str, str]:
    row = feed.conn.execute("SELECT tiles_until FROM tidegauge.state WHERE name = %s", [feed.specs[0].name]).fetchone()
    return row[0]


def views(*at: datetime) -> list[dict]:
    return [{"start": floor(each, MINUTE), "n": 1} for each in at]


def counted(feed: Feed, length: timedelta, to: datetime, **asked) -> tuple[int, str]:
    """Return how many views a window has, and its granularity."""
    snapshot, [window] = StateReader(feed.conn, feed.specs[0]).windows([()], [length], to=to, **asked)
    return snapshot.parsed()[0]["values"][0]["n"], window.granularity


def starts(feed: Feed) -> list[datetime]:
    return [key[0] for key, _ in feed.backing(feed.specs[0]).scan()]


class TestCompaction:
    @pytest.fixture
    def feed(self, new_feed, fresh) -> Feed:
        return new_feed(fresh(WHOLE))

    def compact(self, feed):
        return {step.step: step.removed for step in compact(feed.conn, feed.specs[0], keep=FOR_EVER) if step.removed}

    def test_minutes_become_hours_and_hours_become_days(self, feed):
        now = START + 5 * DAY
        for at in (START + MINUTE, START + HOUR, now - 5 * HOUR, now - 5 * HOUR + MINUTE, now - 3 * MINUTE):
            feed.run(views(at))
        feed.run(views(now))

        assert self.compact(feed) == {"fine tiles": 3}
        assert starts(feed) == [START, now - 5 * HOUR, now - 3 * MINUTE, now]
        assert counted(feed, HOUR, now + MINUTE) == (2, "minute")
        assert counted(feed, DAY, now + MINUTE) == (4, "hour")
        assert counted(feed, 6 * DAY, now + MINUTE) == (6, "day")
        assert self.compact(feed) == {}

    def test_a_late_event_counts_at_once_and_in_its_hour_from_the_next_run_on(self, feed):
        now = START + 9 * HOUR
        feed.run(views(START + MINUTE, START + 2 * MINUTE))
        feed.run(views(now))
        feed.run(views(now))
        self.compact(feed)

        feed.run(views(START + 40 * MINUTE))

        assert counted(feed, 9 * HOUR, now) == (3, "hour")
        assert len(starts(feed)) == 3
        feed.run(views(now))
        assert self.compact(feed) == {"fine tiles": 1}
        assert counted(feed, 9 * HOUR, now) == (3, "hour")

    def test_batches_from_before_the_last_compaction_are_out_of_reach(self, feed):
        for at in (START, START + MINUTE, START + 9 * HOUR, START + 9 * HOUR + MINUTE):
            feed.run(views(at))
        assert counted(feed, DAY, START + DAY, at_txid=1) == (1, "minute")

        self.compact(feed)

        with pytest.raises(OutOfReachError, match="from batch 3 on"):
            counted(feed, DAY, START + DAY, at_txid=1)
        assert counted(feed, DAY, START + DAY, at_txid=3) == (3, "hour")

    def test_a_task_that_writes_makes_it_wait_and_look_for_other_work(self, feed, connect, monkeypatch):
        monkeypatch.setattr(compaction, "LOCK_TIMEOUT", "10ms")
        for at in (START + MINUTE, START + 9 * HOUR, START + 9 * HOUR):
            feed.run(views(at))
        batch = feed.begin(3)
        with connect() as task, task.transaction():
            lock_fence(task, batch)
            steps = compact(feed.conn, feed.specs[0], keep=FOR_EVER)
            waiting = [next(step for step in steps if step.step == "fine tiles") for _ in range(3)]

        assert {step.removed for step in waiting} == {0}
        assert max(step.removed for step in steps if step.step == "fine tiles") == 1

    def test_an_event_of_the_future_makes_no_tile_coarse(self, feed):
        now = datetime.now(UTC)
        for at in (now - 9 * MINUTE, now + 30 * DAY, now):
            feed.run(views(at))

        assert self.compact(feed) == {}
        assert counted(feed, HOUR, now + MINUTE) == (2, "minute")

    def test_tiles_past_the_last_keep_are_dropped_and_windows_over_them_refused(self, new_feed, fresh):
        feed = new_feed(fresh(replace(WHOLE, tiles={"minute": HOUR, "hour": DAY})))
        now = START + 3 * DAY
        for at in (START, now - 5 * HOUR, now, now):
            feed.run(views(at))

        assert self.compact(feed) == {"old tiles": 1}

        assert counted(feed, DAY - MINUTE, now) == (1, "hour")
        feed.run(views(START))
        with pytest.raises(TilesGoneError, match=r"begin at 2026-01-06T23:00:00\+00:00, and tiles are kept from"):
            counted(feed, DAY + HOUR, now)

    def test_a_tile_whose_total_would_not_fit_stays_and_still_counts(self, new_feed, fresh):
        feed = new_feed(fresh(replace(WHOLE, measures={"n": Sum("ms", type="bigint")})))
        huge = [{"start": START + at, "n": 2**62} for at in (NOTHING, MINUTE)]
        feed.run([*huge, *views(START + 2 * HOUR, START + 2 * HOUR + MINUTE)])
        for _ in range(2):
            feed.run(views(START + 9 * HOUR))

        assert self.compact(feed) == {"fine tiles": 1}
        assert counted(feed, 9 * HOUR, START + 9 * HOUR) == (2**63 + 2, "hour")

    def test_a_tile_without_rows_left_is_gone(self, new_feed, fresh):
        feed = new_feed(fresh(replace(WHOLE, measures={"n": RowCount()})))
        feed.run([{"start": START, "n": 1}, {"start": START + MINUTE, "n": -1}])
        for _ in range(2):
            feed.run(views(START + 9 * HOUR))

        self.compact(feed)

        assert counted(feed, 9 * HOUR, START + 9 * HOUR) == (0, "hour")
        assert counted(feed, 10 * HOUR, START + 10 * HOUR) == (2, "hour")

    def test_minutes_that_are_to_be_kept_longer_do_not_come_back(self, feed):
        feed.run(views(START, START + 9 * HOUR))
        self.compact(feed)
        longer = replace(feed.specs[0], tiles={"minute": DAY, "hour": 2 * DAY, "day": None})

        list(compact(feed.conn, longer, keep=FOR_EVER))

        assert datetime.fromisoformat(in_use(feed)["hour"]) == START + 7 * HOUR
        assert counted(feed, HOUR, START + HOUR) == (1, "hour")

    def test_tiles_may_be_kept_for_longer_than_there_are_dates(self, new_feed, fresh):
        feed = new_feed(fresh(replace(WHOLE, tiles={"minute": HOUR, "hour": timedelta(days=999_999)})))
        feed.run(views(START, START + 9 * HOUR))

        self.compact(feed)

        assert in_use(feed).keys() == {"hour"}

    def test_sql_and_python_agree_on_the_tile_in_use(self, feed):
        feed.run(views(START + 5 * DAY))
        self.compact(feed)
        tiles, until = WHOLE.tiling, {name: datetime.fromisoformat(at) for name, at in in_use(feed).items()}
        times = [START + 5 * DAY - each for each in (NOTHING, MINUTE / 7, 2 * HOUR, 3 * HOUR, 2 * DAY, 9 * DAY)]
        times += [*until.values(), *(at - timedelta(microseconds=1) for at in until.values())]
        times += [datetime(1969, 12, 31, 23, 59, 59, 5, UTC), datetime(1, 1, 1, tzinfo=UTC)]

        rows = feed.conn.execute(
            "SELECT tidegauge.tile_start(%s, at) FROM unnest(%s::timestamptz[]) WITH ORDINALITY t (at, n) ORDER BY n",
            [feed.specs[0].name, times],
        )

        assert [at for (at,) in rows] == [tiles.start(at, until) for at in times]


class TestWindows:
    def test_several_windows_of_several_keys_come_from_one_read(self, new_feed, fresh):
        feed = new_feed(fresh(VIEWS))
        feed.run(rows(VIEWS, [Event("a", START, 5), Event("a", START + HOUR, 9), Event("b", START, 1)]))

        snapshot, windows = StateReader(feed.conn, feed.specs[0]).windows(
            [("b",), ("a",), ("b",)], [DAY, 30 * MINUTE, DAY], ["most", "n"], to=START + HOUR + 90 * MINUTE / 60
        )

        assert [(result["key"], result["values"]) for result in snapshot.parsed()] == [
            (["b"], [{"most": 1, "n": 1}, {"most": None, "n": 0}, {"most": 1, "n": 1}]),
            (["a"], [{"most": 9, "n": 2}, {"most": 9, "n": 1}, {"most": 9, "n": 2}]),
            (["b"], [{"most": 1, "n": 1}, {"most": None, "n": 0}, {"most": 1, "n": 1}]),
        ]
        assert {window.until for window in windows} == {START + HOUR + MINUTE}
        assert (snapshot.txid, windows[1].since) == (1, START + 31 * MINUTE)

    def test_they_end_now_by_the_clock_of_the_database_or_of_the_batch(self, new_feed, fresh):
        feed = new_feed(fresh(WHOLE))
        batch = feed.run(views(datetime.now(UTC) - 2 * MINUTE))
        reader = StateReader(feed.conn, feed.specs[0])
        before = datetime.now(UTC)

        snapshot, [now] = reader.windows([()], [HOUR])
        _, [then] = reader.windows([()], [HOUR], at_txid=1)

        assert floor(before, MINUTE) <= now.until <= before
        assert then.until == floor(batch.batch_time, MINUTE)
        assert snapshot.parsed()[0]["values"] == [{"n": 1}]

    @pytest.mark.parametrize(
        ("asked", "said"),
        [
            ({"lengths": []}, "0 windows; ask for 1 to 20"),
            ({"lengths": [NOTHING]}, "is not a whole number of seconds"),
            ({"lengths": [HOUR / 7]}, "is not a whole number of seconds"),
            ({"lengths": [HOUR], "to": datetime(2026, 1, 5)}, "need its time zone"),
            ({"lengths": [HOUR], "measures": ["x"]}, "no measure 'x'"),
        ],
    )
    def test_what_no_answer_can_have_is_refused(self, new_feed, fresh, asked, said):
        feed = new_feed(fresh(WHOLE))

        with pytest.raises(SpecError, match=said):
            StateReader(feed.conn, feed.specs[0]).windows([()], **asked)

    def test_a_state_without_tiles_and_too_many_tiles_are_refused(self, new_feed, fresh):
        plain, tiled = fresh(replace(WHOLE, name="plain", tiles=None)), fresh(WHOLE)
        feed = new_feed(plain, tiled)
        feed.run([], views(START, START + MINUTE, START + 2 * MINUTE))

        with pytest.raises(SpecError, match="has no tiles"):
            StateReader(feed.conn, plain).windows([()], [HOUR])
        with pytest.raises(RangeTooLargeError, match="fold over 2 tiles"):
            StateReader(feed.conn, tiled).windows([()], [HOUR], to=START + HOUR, most_folded=2)
