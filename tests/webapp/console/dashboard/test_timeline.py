"""What happened to a pipeline is marked on its charts: also what took its ledger back, and reprocesses."""

import json
import re
from html import unescape

import pytest

from tidegauge.state_backends.ledger.epochs import new_epoch
from tidegauge.state_backends.repair.rewind import Rewind
from tidegauge.state_backends.schema import reprocess
from tidegauge.state_backends.schema.reprocess import Phase
from tidegauge.webapp.accounts.models import Restriction

PAGE = "/pipelines/flights/"
PROMOTED = "the server was promoted or recovered: its timeline is 2 and was 1"


def marks(response) -> dict[str, str]:
    """The text of each mark on the charts with its tone, without the start of the driver."""
    drawn = json.loads(unescape(re.search(r'data-marks="([^"]*)"', response.content.decode())[1]))
    return {text: tone for _, text, tone in drawn if text != "driver started"}


def test_a_rewind_and_a_restore_of_all_are_marked_and_not_the_rewind_of_another_pipeline(filled, reader):
    Rewind(filled.conn, "flights", 1).run()
    new_epoch(filled.conn, PROMOTED)
    new_epoch(filled.conn, "pipeline 'flights_2' was rewound from batch 9 to batch 3", "flights_2")

    assert marks(reader.get(PAGE)) == {"rewound from batch 2 to batch 1": "watch", PROMOTED: "watch"}


@pytest.mark.parametrize(
    ("phases", "mark"),
    [
        ([Phase.SWAPPED, Phase.SETTLED], "reprocessed states replaced the former ones"),
        ([Phase.ABORTED], "reprocess aborted"),
        ([Phase.SWAPPED, Phase.SETTLED, Phase.ROLLING_BACK, Phase.ROLLED_BACK], "reprocess taken back"),
    ],
)
def test_a_reprocess_is_marked_from_its_start_to_its_end(reprocessing, reader, phases, mark):
    for before, after in zip([Phase.FEEDING, *phases], phases, strict=False):
        reprocess.enter(reprocessing.conn, "flights", before, after)
    # As a swap of some states and a roll-back do, which make epochs.
    new_epoch(reprocessing.conn, "the reprocess of pipeline 'flights' was rolled back", "flights")

    found = marks(reader.get(PAGE))

    assert found.pop("reprocess started") == "calm"
    assert list(found)[-1] == mark
    assert set(found.values()) == {"watch"}
    assert len(found) == (2 if mark == "reprocess taken back" else 1)


def test_what_was_before_the_range_is_not_marked(filled, reader):
    new_epoch(filled.conn, PROMOTED)
    filled.conn.execute("UPDATE tidegauge.epoch SET made_at = made_at - interval '2 days'")

    assert marks(reader.get(f"{PAGE}?range=24h")) == {}
    assert marks(reader.get(f"{PAGE}?range=7d")) == {PROMOTED: "watch"}


def test_a_restricted_reader_sees_none_of_them(filled, reader, django_user_model):
    new_epoch(filled.conn, PROMOTED)
    Restriction.objects.create(user=django_user_model.objects.get(username="reader"), states=["totals"])

    assert marks(reader.get(PAGE)) == {}
