"""What the sources of a pipeline have pending, as its driver reports it."""

from dataclasses import replace

from tidegauge.pipelines.sources.pending import Pending, combined

SLOT = Pending(2_000, "bytes of log", "2026-11-26T10:00:00+00:00", "the slot holds 2 GB")
FILES = Pending(3, "files", None)


def test_what_several_sources_have_is_added_up_with_the_alarms_of_all():
    assert combined([SLOT]) == SLOT
    assert combined([None, FILES, SLOT]) == replace(SLOT, count=2_003, unit="bytes of log and files")
    assert combined([SLOT, SLOT]) == Pending(4_000, SLOT.unit, SLOT.oldest, f"{SLOT.alarm}; {SLOT.alarm}")
    assert combined([None]) is None
