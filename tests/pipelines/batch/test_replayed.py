"""Dead letters that are replayed after a fix count exactly once, whatever dies and whatever else counts them."""

from dataclasses import replace

import pytest

from tests.pipelines.fault_injection import InjectedFault
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.driver.driver import Driver, RunOptions
from tidegauge.pipelines.repair.partial_reprocess import PartialReprocess
from tidegauge.pipelines.repair.recount import Recount
from tidegauge.pipelines.repair.recovery import Recovery
from tidegauge.pipelines.repair.reprocess import Reprocess
from tidegauge.pipelines.sources.files.formats import CsvFiles, JsonFiles
from tidegauge.state_backends import BatchLedger, Count, StateSpec
from tidegauge.state_backends.dead_letters.replay import Choice, find, request

pytestmark = pytest.mark.spark

NAMES = StateSpec("names", key={"name": "text"}, measures={"count": Count()}, changelog=True)
SIZES = StateSpec("sizes", key={"n": "text"}, measures={"count": Count()}, changelog=True)

WRONG, FIXED = "name string NOT NULL, n int", "name string NOT NULL, n string"

LETTERS = """
SELECT line, reason, replay_txid, replay_at IS NOT NULL FROM tidegauge.dead_letter WHERE pipeline = 'names' ORDER BY id
"""


def pipeline(workspace, schema, spec=NAMES):
    events = Stream.read(JsonFiles(workspace.input, schema=schema, max_bad_share=1.0))
    sizes = events.where("n is not null").each(n="CAST(n AS string)").group_by("n").persistent_aggregate(SIZES)
    return Pipeline("names", [events.group_by("name").persistent_aggregate(spec), sizes])


def counts(workspace, state="names"):
    return {name: value["count"] for name, value in workspace.values(state).items()}


def requested(workspace, **choice):
    return request(workspace.conn, "names", Choice(**choice), "a test")


@pytest.fixture
def fed(workspace):
    """One good line, two equal ones that a fix can read, one that it cannot."""
    workspace.land("1.json", '{"name": "a"}', *['{"name": "a", "n": "x"}'] * 2, "oops")
    workspace.run(pipeline(workspace, WRONG))
    return workspace


def test_what_can_be_read_now_counts_once_and_the_rest_stays_with_its_new_reason(fed):
    marked = requested(fed, reason="expected int"), requested(fed)

    batches = fed.run(pipeline(fed, FIXED))
    again = requested(fed), fed.run(pipeline(fed, FIXED)), fed.run(pipeline(fed, FIXED))

    assert marked == (2, 3)
    assert batches == [(2, 1)]
    assert again == (1, [(3, 1)], [])
    assert counts(fed) == {"a": 3}
    assert counts(fed, "sizes") == {"x": 2}
    assert fed.rows(LETTERS)[:2] == [('{"name": "a", "n": "x"}', 'n: expected int, got "x"', 2, True)] * 2
    assert fed.rows(LETTERS)[2:] == [("oops", "not JSON: Expecting value at column 1", None, False)]
    assert fed.rows("SELECT rows_in, dead_letters FROM tidegauge.batch ORDER BY txid") == [(4, 3), (0, 0), (0, 0)]


def test_a_batch_that_dies_before_its_commit_counts_the_same_letters_at_its_next_attempt(fed, monkeypatch):
    requested(fed, reason="expected int")
    commit = BatchLedger.commit

    def die_once(*args, **figures):
        monkeypatch.setattr(BatchLedger, "commit", commit)
        raise InjectedFault

    monkeypatch.setattr(BatchLedger, "commit", die_once)
    with pytest.raises(InjectedFault):
        fed.run(pipeline(fed, FIXED))
    between = counts(fed), find(fed.conn, "names", Choice()).letters, requested(fed, reason="not JSON")
    fed.land("2.json", '{"name": "b"}')

    batches = fed.run(pipeline(fed, FIXED))

    # The request made in between is taken with the new file, or by a batch of its own if a poll comes between the two.
    assert batches[:2] == [(2, 2), (3, 1)]
    assert between == ({"a": 1}, 1, 1)
    assert counts(fed) == {"a": 3, "b": 1}


def test_a_driver_that_runs_takes_them_at_once_without_other_input(fed, database_url):
    fed.land("2.json", '{"name": "b"}')
    txids = []

    def request_then_stop(batch):
        txids.append(batch.txid)
        if batch.txid == 2:
            requested(fed, reason="expected int")
        else:
            driver.stop()

    options = RunOptions(fed.checkpoint, max_failures=1)
    driver = Driver(pipeline(fed, FIXED), fed.spark, database_url, options, request_then_stop)
    driver.run()

    assert txids == [2, 3]
    assert counts(fed) == {"a": 3, "b": 1}


def test_a_batch_that_comes_again_counts_its_letters_once_and_a_rewind_takes_them_back_to_be_replayed_again(fed):
    requested(fed, pattern="n: expected int, got …")
    fed.run(pipeline(fed, FIXED))
    fed.forget_last_commit()
    fed.run(pipeline(fed, FIXED))
    once = counts(fed)

    list(Recovery(pipeline(fed, FIXED), fed.dsn, fed.checkpoint, lambda: fed.spark).rewind(1))
    back = counts(fed), {row[2:] for row in fed.rows(LETTERS)}
    nothing = fed.run(pipeline(fed, FIXED))
    requested(fed, reason="expected int")
    fed.run(pipeline(fed, FIXED))

    assert once == {"a": 3}
    assert back == ({"a": 1}, {(None, False)})
    assert nothing == []
    assert counts(fed) == {"a": 3}


def test_a_recount_and_a_reprocess_count_each_letter_once(fed):
    requested(fed, reason="expected int")
    fed.run(pipeline(fed, FIXED))
    recount = Recount(pipeline(fed, FIXED), "names", fed.conn, lambda: fed.spark, fed.checkpoint)

    assert recount.audit(100).is_exact
    Reprocess(pipeline(fed, FIXED), fed.spark, fed.dsn, fed.checkpoint).run()

    assert counts(fed) == {"a": 3}
    assert [row[0] for row in fed.rows(LETTERS)] == ["oops"]


def test_what_a_partial_reprocess_has_read_from_the_source_is_not_replayed(fed):
    requested(fed, reason="expected int")
    PartialReprocess(pipeline(fed, FIXED), ["names"], fed.spark, fed.dsn, fed.checkpoint).run()

    found = find(fed.conn, "names", Choice())

    assert (found.letters, found.without_record, found.counted) == (1, 0, 2)
    assert fed.run(pipeline(fed, FIXED)) == []
    assert counts(fed) == {"a": 3}


def test_bytes_that_are_no_text_are_kept_as_they_are_and_a_line_under_a_wrong_header_is_not(workspace):
    (workspace.input / "1.csv").write_bytes(b'name,n\n\xff\xfe,1\n"a,b",x\n')
    (workspace.input / "2.csv").write_bytes(b"n,name\n1,c\n")
    spec = replace(NAMES, changelog=False)

    def csv(schema):
        events = Stream.read(CsvFiles(workspace.input, schema=schema, max_bad_share=1.0))
        return Pipeline("names", [events.group_by("name").persistent_aggregate(spec)])

    workspace.run(csv(WRONG))
    records = workspace.rows("SELECT record -> 'line' FROM tidegauge.dead_letter ORDER BY source, line_number")
    requested(workspace)
    workspace.run(csv(FIXED))

    assert records == [({"base64": "//4sMQ=="},), ('"a,b",x',), (None,), (None,)]
    assert counts(workspace) == {"a,b": 1}
