"""What people set of a state stands above its declaration until they take it back."""

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.state_backends.feed import let_time_pass, views
from tidegauge.state_backends import BatchLedger, Catalog, Changelog, Count, StateReader, StateSpec
from tidegauge.state_backends.errors import OutOfReachError, SpecError, SpecMismatchError, UnknownStateError
from tidegauge.state_backends.maintenance import expire
from tidegauge.state_backends.schema.overrides import DECLARED
from tidegauge.state_backends.schema.swap import Swap, shadow_name

VIEWS = StateSpec("views", key={"page": "text"}, measures={"n": Count()}, ttl=timedelta(days=10))
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@pytest.fixture
def catalog(conn):
    return Catalog(conn)


def start(feed):
    """Do what a driver does at its start."""
    Catalog(feed.conn).register_states(feed.pipeline, feed.specs, {spec.name: "" for spec in feed.specs})


def in_force(batch, spec):
    """Return the declaration as a batch goes by it, as pipelines do."""
    return replace(spec, ttl=batch.ttls[spec.name])


def begin(feed, rows, batch_id):
    """Begin a batch, write it and leave it open."""
    batch = feed.begin(batch_id)
    feed.apply(batch, in_force(batch, feed.specs[0]), rows)
    return batch


def run(feed, rows):
    feed.ledger.commit(begin(feed, rows, feed.next_batch_id()))


def expired(feed):
    steps = list(expire(feed.conn, Catalog(feed.conn).get(feed.specs[0].name)))
    return sum(step.removed for step in steps)


@pytest.fixture
def feed(new_feed, fresh):
    """One page was viewed five times, two days ago."""
    feed = new_feed(spec := fresh(VIEWS))
    run(feed, views(("/home", 5)))
    let_time_pass(feed.conn, [spec], feed.pipeline, 2 * DAY)
    return feed


@pytest.fixture
def name(feed):
    return feed.specs[0].name


class TestTtl:
    def test_readers_go_by_it_at_once(self, feed, catalog, name):
        reader = StateReader(feed.conn, feed.specs[0])
        before = reader.multi_get([("/home",)]).parsed()[0]["status"]

        catalog.edit(name, ttl=DAY)

        assert (before, reader.multi_get([("/home",)]).parsed()[0]["status"]) == ("found", "expired")
        assert feed.conn.execute(f"SELECT count(*) FROM tidegauge_live.{name}").fetchone() == (0,)

    def test_it_outlives_the_start_of_a_driver_that_declares_another(self, feed, catalog, name):
        catalog.edit(name, ttl=DAY)

        start(feed)

        assert catalog.get(name).ttl == DAY
        assert catalog.terms(name).declared_ttl == 10 * DAY

    @pytest.mark.parametrize("declared", [None, timedelta(days=3), timedelta(days=400, microseconds=1)])
    def test_taken_back_the_declaration_counts_as_it_is_by_now(self, feed, catalog, name, declared):
        catalog.edit(name, ttl=None)
        feed.specs = [replace(feed.specs[0], ttl=declared)]
        start(feed)
        held = catalog.get(name).ttl

        before, after = catalog.edit(name, ttl=DECLARED)

        assert held is None
        assert (before.edited, after.edited) == ({"ttl"}, frozenset())
        assert catalog.get(name).ttl == after.ttl == declared

    def test_for_ever_is_an_edit_too(self, feed, catalog, name):
        catalog.edit(name, ttl=None)
        start(feed)

        assert (catalog.get(name).ttl, catalog.terms(name).edited) == (None, {"ttl"})

    def test_nothing_is_no_ttl(self, feed, catalog, name):
        with pytest.raises(SpecError, match="must be longer than zero"):
            catalog.edit(name, ttl=timedelta())

        assert catalog.get(name).ttl == 10 * DAY

    def test_an_unknown_state_is_refused_with_the_names_there_are(self, catalog, name):
        with pytest.raises(UnknownStateError, match=f"there are .*{name}"):
            catalog.edit("nope", ttl=DAY)

    def test_what_was_registered_before_anybody_could_edit_is_as_it_was_declared(self, feed, catalog, name):
        feed.conn.execute("UPDATE tidegauge.state SET declared = '{}' WHERE name = %s", [name])

        catalog.edit(name, ttl=DAY)
        catalog.edit(name, ttl=DECLARED)

        assert catalog.get(name).ttl == 10 * DAY


class TestTtlOfABatch:
    """A batch that is open goes by the ttl it was begun with, whatever is set between its attempts."""

    def test_a_shorter_one_between_two_attempts_does_not_part_them(self, feed, catalog, name):
        begin(feed, views(("/home", 1)), 1)
        catalog.edit(name, ttl=DAY)

        retry = begin(feed, views(("/home", 1)), 1)
        feed.ledger.commit(retry)

        assert (retry.attempt, retry.ttls) == (2, {name: 10 * DAY})
        assert feed.read(feed.specs[0], ("/home",)) == [{"n": 6}]

    def test_a_longer_one_between_two_attempts_does_not_part_them(self, feed, catalog, name):
        catalog.edit(name, ttl=DAY)
        begin(feed, views(("/home", 1)), 1)
        catalog.edit(name, ttl=None)

        retry = begin(feed, views(("/home", 1)), 1)
        feed.ledger.commit(retry)

        assert retry.ttls == {name: DAY}
        assert feed.read(feed.specs[0], ("/home",)) == [{"n": 1}]

    def test_several_edits_and_a_new_driver_do_not_part_them(self, feed, catalog, name):
        begin(feed, views(("/home", 1)), 1)
        for ttl in (DAY, None, HOUR):
            catalog.edit(name, ttl=ttl)
        feed.specs = [replace(feed.specs[0], ttl=timedelta(minutes=1))]
        start(feed)

        retry = begin(feed, views(("/home", 1)), 1)

        assert retry.ttls == {name: 10 * DAY}

    def test_the_next_batch_goes_by_the_new_one(self, feed, catalog, name):
        feed.ledger.commit(begin(feed, views(("/home", 1)), 1))
        let_time_pass(feed.conn, feed.specs, feed.pipeline, 2 * DAY)
        catalog.edit(name, ttl=DAY)

        run(feed, views(("/home", 1)))

        assert feed.read(feed.specs[0], ("/home",)) == [{"n": 1}]

    def test_expiry_frees_nothing_that_the_open_batch_builds_upon(self, feed, catalog, name):
        """The attempt that is open has not come to this key yet."""
        begin(feed, views(("/cart", 1)), 1)
        catalog.edit(name, ttl=DAY)

        freed = expired(feed)
        retry = begin(feed, views(("/home", 1), ("/cart", 1)), 1)
        feed.ledger.commit(retry)

        assert freed == 0
        assert feed.read(feed.specs[0], ("/home",), ("/cart",)) == [{"n": 6}, {"n": 1}]

    def test_expiry_frees_it_once_the_batch_is_committed(self, feed, catalog, name):
        batch = begin(feed, views(("/cart", 1)), 1)
        catalog.edit(name, ttl=DAY)
        feed.ledger.commit(batch)

        assert expired(feed) == 1

    def test_a_batch_that_comes_again_after_its_commit_keeps_the_ttl_it_had(self, feed, catalog, name):
        feed.ledger.commit(begin(feed, views(("/home", 1)), 1))
        catalog.edit(name, ttl=DAY)

        again = begin(feed, views(("/home", 1)), 1)
        feed.ledger.commit(again)

        assert again.ttls == {name: 10 * DAY}
        assert feed.read(feed.specs[0], ("/home",)) == [{"n": 6}]

    def test_it_goes_by_the_new_one_once_expiry_has_freed_rows_by_that(self, feed, catalog, name):
        feed.ledger.commit(begin(feed, views(("/cart", 1)), 1))
        catalog.edit(name, ttl=DAY)
        assert expired(feed) == 1

        again = begin(feed, views(("/home", 1)), 1)
        feed.ledger.commit(again)

        assert again.ttls == {name: DAY}
        assert feed.read(feed.specs[0], ("/home",)) == [{"n": 1}]

    def test_an_edit_does_not_wait_for_tasks_nor_they_for_it(self, feed, connect, name):
        batch = feed.begin(1)

        with feed.conn.transaction(), connect() as other:
            other.execute("SET lock_timeout = '2s'")
            feed.apply(batch, in_force(batch, feed.specs[0]), views(("/home", 1)))
            Catalog(other).edit(name, ttl=DAY)

        feed.ledger.commit(batch)
        assert feed.read(feed.specs[0], ("/home",)) == [{"n": 6}]


class TestChangelog:
    @pytest.fixture
    def feed(self, new_feed, fresh):
        feed = new_feed(fresh(replace(VIEWS, ttl=None)))
        run(feed, views(("/home", 5)))
        run(feed, views(("/home", 1)))
        return feed

    @pytest.fixture
    def logged(self, new_feed, fresh):
        feed = new_feed(fresh(replace(VIEWS, ttl=None, changelog=True)))
        run(feed, views(("/home", 5)))
        run(feed, views(("/home", 1)))
        return feed

    def test_it_begins_when_the_driver_starts_next_with_what_is_committed(self, feed, catalog):
        (spec,) = feed.specs
        _, after = catalog.edit(spec.name, changelog=True)
        meanwhile = catalog.get(spec.name).changelog

        start(feed)

        assert (after.changelog, after.next_changelog, meanwhile) == (False, True, False)
        history = Changelog(feed.conn, catalog.get(spec.name)).history(("/home",))
        assert [(change.txid, change.value) for change in history] == [(2, {"n": 6})]
        oldest = feed.conn.execute("SELECT oldest_txid FROM tidegauge.state WHERE name = %s", [spec.name]).fetchone()
        assert oldest == (2,)

    def test_it_stays_when_the_driver_starts_again(self, feed, catalog):
        catalog.edit(feed.specs[0].name, changelog=True)
        start(feed)
        feed.run(views(("/home", 1)))

        start(feed)

        assert catalog.terms(feed.specs[0].name).changelog
        assert tables(feed) == 1

    @pytest.mark.parametrize("wish", [DECLARED, False])
    def test_one_that_was_asked_for_is_dropped_when_that_is_taken_back(self, feed, catalog, wish):
        (spec,) = feed.specs
        catalog.edit(spec.name, changelog=True)
        start(feed)
        catalog.edit(spec.name, changelog=wish)

        start(feed)

        assert not catalog.get(spec.name).changelog
        assert tables(feed) == 0
        run(feed, views(("/home", 1)))
        assert feed.read(spec, ("/home",)) == [{"n": 7}]

    def test_one_that_is_declared_is_dropped_where_people_say_so(self, logged, catalog):
        (spec,) = logged.specs
        catalog.edit(spec.name, changelog=False)
        before = tables(logged)

        start(logged)
        start(logged)

        assert (before, tables(logged)) == (1, 0)
        assert not catalog.get(spec.name).changelog

    def test_reads_in_the_past_end_where_it_was_dropped(self, logged, catalog):
        (spec,) = logged.specs
        catalog.edit(spec.name, changelog=False)
        start(logged)

        with pytest.raises(OutOfReachError):
            StateReader(logged.conn, catalog.get(spec.name)).multi_get([("/home",)], at_txid=1)

    def test_one_that_was_dropped_begins_anew_when_it_is_wanted_again(self, logged, catalog):
        (spec,) = logged.specs
        catalog.edit(spec.name, changelog=False)
        start(logged)
        catalog.edit(spec.name, changelog=DECLARED)

        start(logged)

        history = Changelog(logged.conn, spec).history(("/home",))
        assert [change.txid for change in history] == [2]

    def test_an_open_batch_is_undone_and_counted_again_across_the_change(self, feed, catalog):
        (spec,) = feed.specs
        begin(feed, views(("/home", 100)), 2)
        catalog.edit(spec.name, changelog=True)
        start(feed)
        feed.specs = [catalog.get(spec.name)]

        feed.ledger.commit(begin(feed, views(("/home", 1)), 2))

        assert feed.read(spec, ("/home",)) == [{"n": 7}]
        history = Changelog(feed.conn, feed.specs[0]).history(("/home",))
        assert [(change.txid, change.value["n"]) for change in history] == [(3, 7), (2, 6)]

    def test_a_transactional_state_starts_without_it_while_a_batch_is_open(self, new_feed, fresh, catalog):
        feed = new_feed(spec := fresh(replace(VIEWS, kind="transactional")), spout="transactional")
        run(feed, views(("/home", 5)))
        batch = begin(feed, views(("/home", 1)), 1)
        catalog.edit(spec.name, changelog=True)

        start(feed)
        meanwhile = catalog.terms(spec.name)
        feed.ledger.commit(batch)
        start(feed)

        assert (meanwhile.changelog, meanwhile.next_changelog) == (False, True)
        assert catalog.get(spec.name).changelog

    def test_a_state_without_txids_cannot_have_one(self, new_feed, fresh, catalog):
        new_feed(spec := fresh(replace(VIEWS, kind="non_transactional")))

        with pytest.raises(SpecError, match="a changelog needs txids"):
            catalog.edit(spec.name, changelog=True)

    def test_a_state_in_redis_keeps_the_one_it_was_made_with(self, new_feed, fresh, catalog):
        new_feed(spec := fresh(replace(VIEWS, backend="redis")))

        with pytest.raises(SpecError) as caught:
            catalog.edit(spec.name, ttl=DAY, changelog=True)

        assert str(caught.value) == (
            f"state {spec.name!r}: lives in redis, whose rows are not copied into a changelog that begins later; "
            "declare a new state with one, and feed it from the start of the input"
        )
        assert catalog.get(spec.name).ttl == 10 * DAY

    def test_a_declaration_that_drops_one_is_still_refused(self, logged):
        logged.specs = [replace(logged.specs[0], changelog=False)]

        with pytest.raises(SpecMismatchError, match="changelog was True, is False"):
            start(logged)


class TestSwap:
    """A reprocess takes the edits over, too."""

    def successor(self, feed):
        return Swap(feed.conn, feed.pipeline)

    def test_it_is_begun_under_the_edits_and_keeps_them_at_the_swap(self, new_feed, fresh, catalog):
        feed = new_feed(spec := fresh(VIEWS))
        run(feed, views(("/home", 5)))
        catalog.edit(spec.name, ttl=DAY, changelog=True)
        self.successor(feed).begin(feed.specs, spout="opaque")
        batch = self.feed_anew(feed)

        self.successor(feed).swap(feed.specs, {spec.name: ""})

        terms = catalog.terms(spec.name)
        assert batch.ttls == {spec.name: DAY}
        assert (terms.ttl, terms.changelog, terms.declared_ttl, terms.declared_changelog) == (
            DAY,
            True,
            10 * DAY,
            False,
        )
        assert terms.edited == {"ttl", "changelog"}

    def test_what_is_set_meanwhile_waits_for_the_next_driver(self, new_feed, fresh, catalog):
        feed = new_feed(spec := fresh(VIEWS))
        run(feed, views(("/home", 5)))
        self.successor(feed).begin(feed.specs, spout="opaque")
        catalog.edit(spec.name, changelog=True)
        start(feed)
        meanwhile = catalog.get(spec.name).changelog
        self.successor(feed).begin(feed.specs, spout="opaque")
        self.feed_anew(feed)
        self.successor(feed).swap(feed.specs, {spec.name: ""})
        swapped = catalog.get(spec.name).changelog

        start(feed)

        assert (meanwhile, swapped, catalog.get(spec.name).changelog) == (False, False, True)

    def test_a_new_declaration_of_the_ttl_counts_for_it_where_nobody_has_set_one(self, new_feed, fresh, catalog):
        feed = new_feed(spec := fresh(VIEWS))
        run(feed, views(("/home", 5)))
        feed.specs = [replace(spec, ttl=HOUR)]
        self.successor(feed).begin(feed.specs, spout="opaque")

        batch = self.feed_anew(feed)

        assert batch.ttls == {}

    def feed_anew(self, feed):
        ledger = BatchLedger(feed.conn, shadow_name(feed.pipeline))
        ledger.acquire()
        ledger.bind("another checkpoint")
        batch = ledger.begin(0)
        ledger.commit(batch)
        ledger.release()
        return batch


def tables(feed):
    found = feed.conn.execute(
        "SELECT count(*) FROM pg_class WHERE relname = %s AND relnamespace = 'tidegauge_changelog'::regnamespace",
        [feed.specs[0].name],
    )
    return found.fetchone()[0]


def test_a_batch_that_an_older_version_left_open_goes_by_what_is_set_when_it_is_tried_again(new_feed, fresh, catalog):
    feed = new_feed(spec := fresh(VIEWS))
    feed.begin(0)
    feed.conn.execute("UPDATE tidegauge.batch SET ttls = NULL WHERE pipeline = %s", [feed.pipeline])
    catalog.edit(spec.name, ttl=DAY)

    assert feed.begin(0).ttls == {spec.name: DAY}


def test_a_batch_tells_its_ttls_to_the_microsecond(new_feed, fresh):
    odd = timedelta(days=400, hours=3, microseconds=1)
    feed = new_feed(spec := fresh(replace(VIEWS, ttl=odd)))

    assert feed.begin(0).ttls == {spec.name: odd}
