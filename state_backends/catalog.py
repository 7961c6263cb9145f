"""The catalog: which pipelines and states exist, as stored beside them.

It is how the web learns what there is, and where a declaration meets the stored one: a new measure is added, any
other difference is refused and named.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import psycopg

from state_backends.aggregators import AGGREGATORS
from state_backends.errors import SpecMismatchError, UnknownStateError
from state_backends.protocols import Aggregator
from state_backends.schema import tables
from state_backends.schema.install import install
from state_backends.spec import StateSpec
from state_backends.table import StateTable


class Catalog:
    """The stored pipelines and states of one database.

    conn: a psycopg connection, whose transactions are the caller's.
    """

    def __init__(self, conn: psycopg.Connection) -> None:
        self._conn = conn

    def install(self) -> None:
        """Create Tidemark's own tables where they are missing."""
        install(self._conn)

    def register_pipeline(self, name: str, *, spout: str, description: str = "") -> None:
        """Make the pipeline known; the ledger's row for it starts at txid 0."""
        self._conn.execute(
            "INSERT INTO tidemark.pipeline (name, spout, description) VALUES (%s, %s, %s) "
            "ON CONFLICT (name) DO NOTHING",
            [name, spout, description],
        )
        # Not an upsert: a row that is the same already must not be locked, executors may hold it.
        self._conn.execute(
            "UPDATE tidemark.pipeline SET spout = %(spout)s, description = %(description)s "
            "WHERE name = %(name)s AND (spout, description) IS DISTINCT FROM (%(spout)s, %(description)s)",
            {"name": name, "spout": spout, "description": description},
        )

    def register_states(self, pipeline: str, specs: Iterable[StateSpec], guarantees: Mapping[str, str]) -> None:
        """Create the tables of new states and extend those that gained a measure; all of them, or none.

        guarantees: state name to what is promised of it, for people.
        Raises SpecMismatchError naming the difference where a stored state is another one.
        """
        with self._conn.transaction():
            # One registration at a time; readers of the catalog go on.
            self._conn.execute("LOCK TABLE tidemark.state IN SHARE ROW EXCLUSIVE MODE")
            for spec in specs:
                self._register(pipeline, spec, guarantees[spec.name])

    def get(self, name: str) -> StateSpec:
        """Return the stored spec of a state. Raises UnknownStateError with the names there are."""
        row = self._conn.execute("SELECT definition::text, ttl FROM tidemark.state WHERE name = %s", [name]).fetchone()
        if row is None:
            raise UnknownStateError.among(name, self.names())
        return from_definition(name, json.loads(row[0]), row[1])

    def names(self, pipeline: str | None = None) -> list[str]:
        """Return the names of all states, or of a pipeline's, in order."""
        rows = self._conn.execute(
            "SELECT name FROM tidemark.state WHERE %(pipeline)s::text IS NULL OR pipeline = %(pipeline)s ORDER BY name",
            {"pipeline": pipeline},
        )
        return [name for (name,) in rows]

    def specs(self, pipeline: str | None = None) -> list[StateSpec]:
        return [self.get(name) for name in self.names(pipeline)]

    def _register(self, pipeline: str, spec: StateSpec, guarantee: str) -> None:
        declared = definition(spec)
        stored = self._stored(spec.name)
        table = StateTable(spec)
        self._create(table) if stored is None else self._reconcile(pipeline, table, stored)
        self._conn.execute(
            # A state that is added later lacks what its pipeline had counted by then, and says so.
            "INSERT INTO tidemark.state AS s (name, pipeline, definition, ttl, guarantee, since_txid) "
            "VALUES (%(name)s, %(pipeline)s, %(definition)s::jsonb, %(ttl)s, %(guarantee)s, "
            "coalesce((SELECT committed_txid FROM tidemark.pipeline WHERE name = %(pipeline)s), 0)) "
            "ON CONFLICT (name) DO UPDATE SET definition = excluded.definition, ttl = excluded.ttl, "
            "guarantee = excluded.guarantee, "
            "version = s.version + (s.definition IS DISTINCT FROM excluded.definition)::int",
            {
                "name": spec.name,
                "pipeline": pipeline,
                "definition": json.dumps(declared),
                "ttl": spec.ttl,
                "guarantee": guarantee,
            },
        )

    def _create(self, table: StateTable) -> None:
        try:
            tables.create(self._conn, table)
        except psycopg.errors.DuplicateTable as error:
            raise SpecMismatchError(
                f"state {table.spec.name!r}: the database has something of that name already, such as an index or a "
                f"partition of another state ({error.diag.message_primary}); choose another name, or drop that first"
            ) from error

    def _stored(self, name: str) -> tuple[str, dict[str, Any]] | None:
        row = self._conn.execute(
            "SELECT pipeline, definition::text FROM tidemark.state WHERE name = %s", [name]
        ).fetchone()
        return None if row is None else (row[0], json.loads(row[1]))

    def _reconcile(self, pipeline: str, table: StateTable, stored: tuple[str, dict[str, Any]]) -> None:
        owner, held = stored
        name, declared = table.spec.name, definition(table.spec)
        if owner != pipeline:
            raise SpecMismatchError(
                f"state {name!r}: fed by pipeline {owner!r}, so pipeline {pipeline!r} cannot feed it too; choose "
                "another name"
            )
        new = [measure for measure in declared["measures"] if measure not in held["measures"]]
        differences = _differences(held, declared)
        if differences:
            added = [f"measure {measure!r} is new" for measure in new]
            raise SpecMismatchError(
                f"state {name!r}: its declaration differs from the stored one: {'; '.join([*differences, *added])}; "
                "restore the declaration, or feed a new state from the start of the input"
            )
        if new:
            held_columns = from_definition(name, held, None).value_columns
            tables.add_columns(self._conn, table, [column for column in table.values if column not in held_columns])


def definition(spec: StateSpec) -> dict[str, Any]:
    """Return the spec as JSON, without its name and ttl: what the catalog stores and compares."""
    return {
        "key": dict(spec.key),
        "key_order": list(spec.key),
        "measures": {name: _measure(aggregator) for name, aggregator in spec.measures.items()},
        "measure_order": list(spec.measures),
        "value": spec.value,
        "kind": spec.kind,
        "changelog": spec.changelog,
        "partitions": spec.partitions,
    }


def from_definition(name: str, stored: Mapping[str, Any], ttl: timedelta | None) -> StateSpec:
    measures = stored["measures"]
    return StateSpec(
        name,
        key={column: stored["key"][column] for column in stored["key_order"]},
        measures={
            measure: AGGREGATORS[measures[measure]["aggregator"]](**measures[measure]["arguments"])
            for measure in stored["measure_order"]
        },
        value=stored["value"],
        kind=stored["kind"],
        ttl=ttl,
        changelog=stored["changelog"],
        partitions=stored["partitions"],
    )


def _measure(aggregator: Aggregator) -> dict[str, Any]:
    return {"aggregator": aggregator.name, "arguments": aggregator.arguments()}


def _differences(held: Mapping[str, Any], declared: Mapping[str, Any]) -> Sequence[str]:
    found = [
        f"{part} was {_shown(held[part])}, is {_shown(declared[part])}"
        for part in ("key", "key_order", "value", "kind", "changelog", "partitions")
        if held[part] != declared[part]
    ]
    for measure, was in held["measures"].items():
        now = declared["measures"].get(measure)
        if now is None:
            found.append(f"measure {measure!r} is gone")
        elif now != was:
            found.append(f"measure {measure!r} was {_shown(was)}, is {_shown(now)}")
    return found


def _shown(part: Any) -> str:
    if isinstance(part, dict) and "aggregator" in part:
        arguments = ", ".join(f"{name}={value!r}" for name, value in part["arguments"].items() if value is not None)
        return f"{part['aggregator']}({arguments})"
    return repr(part)
