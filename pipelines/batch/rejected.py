"""Rejected events: stops a batch before it is committed if a state rejects too large a share of its events.

A state rejects misfits (see misfits.py) and groups whose key or total it cannot store (see key_filter.py). A few of
them become dead letters and the state is still right. Many mean that the declaration is wrong and the state lacks most
of its events. Input that cannot be read is checked in input.py; late tuples are left out on purpose.
"""

from collections.abc import Mapping

import psycopg

from tidegauge.pipelines.batch.input import TOLERATED_BAD_LINES
from tidegauge.pipelines.batch.misfits import misfit_letters
from tidegauge.pipelines.batch.sink import Written
from tidegauge.pipelines.declare.frames import Frames
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import FedState, PersistentAggregate
from tidegauge.pipelines.errors import BadInputError
from tidegauge.state_backends.dead_letters.letters import rejected_letters
from tidegauge.state_backends.ledger.batch import Batch


def check_rejected(
    conn: psycopg.Connection, pipeline: Pipeline, batch: Batch, frames: Frames, written: Mapping[str, Written]
) -> None:
    """Raise BadInputError if a state has rejected a larger share of its events than its sources allow.

    written: what the tasks did, by state. A group that cannot be stored counts as one event, however many it has.
    """
    for fed in pipeline.ordered:
        part = written[fed.name]
        rejected = part.misfits + part.invalid
        share = max(source.max_bad_share for source in pipeline.sources_of(fed))
        # Each key that was written had at least one event. Events are counted only if these do not already prove that
        # there were enough, because counting reads the batch again.
        if rejected <= max(TOLERATED_BAD_LINES, share * (part.keys + rejected)):
            continue
        events = frames.of(fed.stream).count()
        if rejected > share * events:
            raise BadInputError(
                f"pipeline {pipeline.name!r}: state {fed.name!r} rejects {rejected} of {events} events of batch "
                f"{batch.txid}, more than the allowed share of {share}; the first: "
                f"{_first_reason(conn, batch, fed, frames, part)}; correct the declaration or the input, leave such "
                "events out with where(), or raise max_bad_share of the source"
            )


def _first_reason(conn: psycopg.Connection, batch: Batch, fed: FedState, frames: Frames, part: Written) -> str:
    # Misfits are looked up, because the driver writes them only after this check; tasks have written the groups.
    if part.misfits and isinstance(fed, PersistentAggregate):
        return next(misfit_letters(fed, frames.of(fed.stream))).reason
    letters = rejected_letters(conn, batch.pipeline, [batch.txid], fed.name)
    return letters.first_reason if letters else ""
