"""Inputs of a state: the sources and states that its pipeline computes it from, as declared in code.

They tell people where a value comes from; nothing is computed from them. They are stored in the column `declared`, with
the rest of the declaration. A state has none until a driver that records them has started.
"""

import json
from collections.abc import Mapping, Sequence

import psycopg

# `sources`: as their classes name them; `states` whose new values it reads; `lookups`: states it looks up keys in.
Inputs = Mapping[str, Sequence[str]]

RECORD = """
UPDATE tidegauge.state SET declared = declared || jsonb_build_object('inputs', %(inputs)s::jsonb)
WHERE name = %(name)s AND declared -> 'inputs' IS DISTINCT FROM %(inputs)s::jsonb
"""


def record_inputs(conn: psycopg.Connection, inputs: Mapping[str, Inputs]) -> None:
    """Record the inputs of registered states, by state name."""
    for name, found in inputs.items():
        conn.execute(RECORD, {"name": name, "inputs": json.dumps(found)})
