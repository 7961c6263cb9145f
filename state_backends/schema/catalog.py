"""The catalog: which pipelines and states exist, stored in the ledger's database.

The web reads it, and a declaration is compared with the one stored in it: settings of users override the declaration
(see overrides.py), differences that a migration can bridge are migrated (see evolution.py), others are refused by name.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import psycopg

from tidegauge.state_backends.committed import ledger_sql
from tidegauge.state_backends.errors import SpecMismatchError
from tidegauge.state_backends.ledger.state_lock import PATIENCE_MS, StateWork, check_owner, state_lock
from tidegauge.state_backends.protocols import BACKENDS, Aggregator
from tidegauge.state_backends.schema import overrides, tables
from tidegauge.state_backends.schema.definition import check_aggregators, definition, from_definition
from tidegauge.state_backends.schema.dependents import check_dependents
from tidegauge.state_backends.schema.evolution import UNSAID, Evolution, compare
from tidegauge.state_backends.schema.feeding import check_gaps, record_feeding
from tidegauge.state_backends.schema.former import check_name, unknown
from tidegauge.state_backends.schema.install import install
from tidegauge.state_backends.schema.overrides import KEEP, Log, Terms, Ttl
from tidegauge.state_backends.schema.table_locks import locked_tables
from tidegauge.state_backends.spec.state_spec import StateSpec
from tidegauge.state_backends.spec.table import StateTable


class Catalog:
    """The stored pipelines and states of one database.

    conn: a psycopg connection, whose transactions are the caller's.
    """

    def __init__(self, conn: psycopg.Connection) -> None:
        self._conn = conn

    def install(self) -> None:
        """Create Tidegauge's own tables if they are missing."""
        install(self._conn)

    def register_pipeline(self, name: str, *, spout: str, description: str = "") -> None:
        """Make the pipeline known; the ledger's row for it starts at txid 0. Raises RetiredError."""
        check_name(self._conn, "pipeline", name)
        self._conn.execute(
            "INSERT INTO tidegauge.pipeline (name, spout, description) VALUES (%s, %s, %s) "
            "ON CONFLICT (name) DO NOTHING",
            [name, spout, description],
        )
        # Not an upsert, because that would lock a row that does not change, and executors may hold it.
        self._conn.execute(
            "UPDATE tidegauge.pipeline SET spout = %(spout)s, description = %(description)s "
            "WHERE name = %(name)s AND (spout, description) IS DISTINCT FROM (%(spout)s, %(description)s)",
            {"name": name, "spout": spout, "description": description},
        )

    def register_states(
        self,
        pipeline: str,
        specs: Sequence[StateSpec],
        guarantees: Mapping[str, str],
        on_copied: Callable[[str, int], object] = lambda state, rows: None,
        on_waiting: Callable[[str], object] = lambda readers: None,
        accept_gap: bool = False,
    ) -> None:
        """Create the tables of new states and migrate those whose declaration has changed; all of them, or none.

        guarantees: state name to its guarantee, to show to people. on_copied: called with the state and the rows copied
        so far while a migration copies it, in a transaction per chunk. on_waiting: called with the sessions that read
        tables that are to change. accept_gap: feed a state or measure again although it lacks committed batches.
        The caller holds the pipeline.
        Settings of users override the specs; `get` returns the result.
        Raises SpecMismatchError, naming the difference, if a stored state cannot become the declared one; SpecError
        for a measure whose class has no line in AGGREGATORS; RetiredError for a name that was retired;
        StateBusyError while another work has the tables of a state that is to change; TablesBusyError if they are
        read for minutes; DependentObjectsError if objects that users have created on them would be lost; StateGapError
        (see feeding.py).
        """
        for spec in specs:
            check_aggregators(spec)
            check_name(self._conn, "state", spec.name)
        if not accept_gap:
            check_gaps(self._conn, pipeline, specs)
        unfed = {spec.name: list(self._unfed(spec)) for spec in specs}
        in_force = [self._in_force(spec) for spec in specs]
        with self._locks(pipeline, in_force) as works:
            for spec in in_force:
                self._check_change(pipeline, spec, in_force)
            for spec in in_force:
                self._copy(pipeline, spec, on_copied)
            with locked_tables(self._conn, list(works), on_waiting):
                for spec, declared in zip(in_force, specs, strict=True):
                    self._register(pipeline, spec, declared, guarantees[spec.name], works.get(spec.name))
                record_feeding(self._conn, pipeline, specs, unfed)

    def check_declarations(self, pipeline: str, specs: Sequence[StateSpec]) -> None:
        """Raise SpecMismatchError if `register_states` would refuse a declaration. Changes nothing."""
        for spec in specs:
            self._evolution(pipeline, self._in_force(spec))

    def get(self, name: str) -> StateSpec:
        """Return the stored spec of a state. Raises UnknownStateError, which names the states that exist."""
        row = self._conn.execute("SELECT definition::text, ttl FROM tidegauge.state WHERE name = %s", [name]).fetchone()
        if row is None:
            raise unknown(self._conn, "state", name, self.names())
        return from_definition(name, json.loads(row[0]), row[1])

    def terms(self, name: str) -> Terms:
        """Return the ttl and changelog that a state has, and those declared for it. Raises UnknownStateError."""
        return self._terms(name)

    def edit(self, name: str, *, ttl: Ttl = KEEP, changelog: Log = KEEP) -> tuple[Terms, Terms]:
        """Override the declared ttl or changelog of a state, or remove an override. Returns the terms before and after.

        ttl: None is unlimited; KEEP leaves it as it is, DECLARED removes the override. It applies to readers at once,
        and to the pipeline from the next batch on: all attempts at an open batch keep the ttl that it was begun with.
        changelog: as ttl; it is created, or dropped, when the state's driver starts next.
        Runs in the caller's transaction. Raises UnknownStateError, and SpecError for a value that it cannot have.
        """
        with self._conn.transaction():
            # The table before the row, because a driver that registers locks them in this order. Not by LOCK, because
            # that needs a privilege on all columns; this takes the same lock, ROW EXCLUSIVE.
            self._conn.execute("UPDATE tidegauge.state SET ttl = ttl WHERE false")
            before = self._terms(name, lock=True)
            after = overrides.changed(self.get(name), before, ttl, changelog)
            if after != before:
                overrides.store(self._conn, name, after)
        return before, after

    def with_overrides(self, spec: StateSpec) -> StateSpec:
        """Return a declaration with the ttl and changelog that people have set for the state."""
        found = overrides.terms(self._conn, spec.name)
        if found is None:
            return spec
        # Checked although no edit gives such a kind a changelog, because the declared kind may have changed since.
        logged = found.next_changelog and spec.kind != "non_transactional"
        return replace(
            spec,
            ttl=found.ttl if "ttl" in found.edited else spec.ttl,
            changelog=logged if "changelog" in found.edited else spec.changelog,
        )

    def names(self, pipeline: str | None = None) -> list[str]:
        """Return the names of all states, or of a pipeline's, in order."""
        rows = self._conn.execute(
            "SELECT name FROM tidegauge.state WHERE %(pipeline)s::text IS NULL OR pipeline = %(pipeline)s "
            "ORDER BY name",
            {"pipeline": pipeline},
        )
        return [name for (name,) in rows]

    def specs(self, pipeline: str | None = None) -> list[StateSpec]:
        return [self.get(name) for name in self.names(pipeline)]

    def partitions(self, backend: str) -> dict[str, int]:
        """Return the number of partitions of each state of a backend, even if its measures are unknown here."""
        rows = self._conn.execute(
            "SELECT name, (definition ->> 'partitions')::int FROM tidegauge.state "
            "WHERE coalesce(definition ->> 'backend', %s) = %s",
            [UNSAID["backend"], backend],
        )
        return dict(rows.fetchall())

    def shadow_specs(self, pipeline: str) -> list[StateSpec]:
        """Return the specs of the states that a reprocess feeds in shadow tables, without their ttl."""
        rows = self._conn.execute(
            "SELECT name, definition::text FROM tidegauge.successor_state WHERE pipeline = %s ORDER BY name", [pipeline]
        )
        return [from_definition(name, json.loads(text), None) for name, text in rows]

    def record_swap(self, pipeline: str, spec: StateSpec, declared: StateSpec, guarantee: str) -> None:
        """Record that a state was reprocessed from the start of the input, as `spec`; declared: without overrides."""
        self._conn.execute(
            "INSERT INTO tidegauge.state AS s (name, pipeline, definition, ttl, guarantee, declared) "
            "VALUES (%s, %s, %s::jsonb, %s, %s, %s::jsonb) ON CONFLICT (name) DO UPDATE "
            "SET definition = excluded.definition, ttl = excluded.ttl, guarantee = excluded.guarantee, "
            "declared = s.declared || excluded.declared, version = s.version + 1, since_txid = 0, "
            "measures_since = '{}', last_fed_txid = NULL, measures_last_fed = '{}'",
            [
                spec.name,
                pipeline,
                json.dumps(definition(spec)),
                self.with_overrides(declared).ttl,
                guarantee,
                overrides.declared(declared.ttl, declared.changelog),
            ],
        )

    def _terms(self, name: str, *, lock: bool = False) -> Terms:
        found = overrides.terms(self._conn, name, lock=lock)
        if found is None:
            raise unknown(self._conn, "state", name, self.names())
        return found

    def _in_force(self, spec: StateSpec) -> StateSpec:
        """Return the declaration to apply: with overrides, except a changelog that has to wait, and unfed measures."""
        wanted = self.with_overrides(replace(spec, measures={**spec.measures, **self._unfed(spec)}))
        held = overrides.terms(self._conn, spec.name)
        if held is None or wanted.changelog == held.changelog or not self._by_hand(spec, held):
            return wanted
        # Postponed, because an override must not keep the driver from starting.
        return replace(wanted, changelog=held.changelog) if self._must_wait(spec) else wanted

    def _unfed(self, spec: StateSpec) -> Mapping[str, Aggregator]:
        """Return the stored measures that the declaration lacks, as that of an older release that is deployed again.

        It returns none if the declaration has a measure that is not stored. That is a renamed measure or another state,
        and is refused.
        """
        row = self._conn.execute("SELECT definition::text FROM tidegauge.state WHERE name = %s", [spec.name]).fetchone()
        held = from_definition(spec.name, json.loads(row[0]), None).measures if row else {}
        is_part = spec.measures and spec.measures.keys() <= held.keys()
        return {name: measure for name, measure in held.items() if is_part and name not in spec.measures}

    def _by_hand(self, spec: StateSpec, held: Terms) -> bool:
        """Return whether a changelog is created or dropped because users set it so, and not because of the code."""
        return "changelog" in held.edited or held.declared_changelog == spec.changelog

    def _must_wait(self, spec: StateSpec) -> bool:
        """Return whether rows cannot be copied now, as an open batch is not counted again or the shadow is in use."""
        row = self._conn.execute(
            ledger_sql(
                "(p.open_txid IS NOT NULL AND s.definition ->> 'kind' = 'transactional') OR EXISTS "
                "(SELECT FROM tidegauge.successor_state n WHERE n.name = s.name)"
            ),
            [spec.name],
        ).fetchone()
        return bool(row and row[0])

    @contextmanager
    def _locks(self, pipeline: str, specs: Sequence[StateSpec]) -> Iterator[Mapping[str, StateWork]]:
        """Hold the lock of each state that has to change, from before its rows are copied until it is registered."""
        evolutions = {spec.name: self._evolution(pipeline, spec) for spec in specs}
        with ExitStack() as locks:
            yield {
                name: locks.enter_context(state_lock(self._conn, name, evolution.work, patience_ms=PATIENCE_MS))
                for name, evolution in evolutions.items()
                if evolution is not None and evolution.differences
            }

    def _check_change(self, pipeline: str, spec: StateSpec, beside: Sequence[StateSpec]) -> None:
        """Raise the errors that creating the state, or changing its tables, would raise only after the work."""
        evolution = self._evolution(pipeline, spec)
        if (tables := BACKENDS[spec.backend].tables) and (evolution is None or evolution.rewritten):
            tables.check_names(self._conn, spec, beside)
            if evolution is not None:
                tables.check_replaceable(self._conn, self.get(spec.name), spec)
        if evolution is not None and evolution.dropped:
            check_dependents(self._conn, spec.name, [StateTable(spec).changelog], "its changelog is dropped")

    def _copy(self, pipeline: str, spec: StateSpec, on_copied: Callable[[str, int], object]) -> None:
        evolution = self._evolution(pipeline, spec)
        if evolution is not None and evolution.rewritten:
            self._check_no_shadow(spec)
            for rows in BACKENDS.tables_of(spec).copy(self._conn, self.get(spec.name), spec):
                on_copied(spec.name, rows)

    def _check_no_shadow(self, spec: StateSpec) -> None:
        """Raise SpecMismatchError if a reprocess uses the shadow of the state."""
        found = self._conn.execute("SELECT name FROM tidegauge.successor_state WHERE name = %s", [spec.name]).fetchone()
        if found:
            raise SpecMismatchError(
                f"state {spec.name!r}: its declaration has changed, so its rows must be copied, but it is being "
                "reprocessed; restore the declaration until the reprocess has ended, or abort the reprocess"
            )

    def _register(
        self, pipeline: str, spec: StateSpec, declared: StateSpec, guarantee: str, work: StateWork | None
    ) -> None:
        evolution = self._evolution(pipeline, spec)
        if evolution is not None and evolution.rewritten:
            check_owner(self._conn, spec.name, work.token if work else "")
        self._create(spec) if evolution is None else self._evolve(spec, evolution)
        self._conn.execute(
            # The txid is recorded, because a state or measure that is added later lacks what was counted by then.
            "INSERT INTO tidegauge.state AS s (name, pipeline, definition, ttl, guarantee, declared, since_txid) "
            "VALUES (%(name)s, %(pipeline)s, %(definition)s::jsonb, %(ttl)s, %(guarantee)s, %(declared)s::jsonb, "
            "coalesce((SELECT committed_txid FROM tidegauge.pipeline WHERE name = %(pipeline)s), 0)) "
            "ON CONFLICT (name) DO UPDATE SET definition = excluded.definition, ttl = excluded.ttl, "
            "guarantee = excluded.guarantee, declared = s.declared || excluded.declared, "
            "version = s.version + (s.definition IS DISTINCT FROM excluded.definition)::int, "
            "measures_since = s.measures_since || coalesce((SELECT jsonb_object_agg(measure, excluded.since_txid) "
            "FROM unnest(%(new)s::text[]) measure), '{}')",
            {
                "name": spec.name,
                "pipeline": pipeline,
                "definition": json.dumps(definition(spec)),
                # Read again, because it may have been set while rows were copied.
                "ttl": self.with_overrides(declared).ttl,
                "guarantee": guarantee,
                "declared": overrides.declared(declared.ttl, declared.changelog),
                "new": [] if evolution is None else evolution.new,
            },
        )

    def _create(self, spec: StateSpec) -> None:
        try:
            BACKENDS[spec.backend].create(self._conn, spec)
        except psycopg.errors.DuplicateTable as error:
            raise SpecMismatchError(
                f"state {spec.name!r}: the database has something of that name already, such as an index or a "
                f"partition of another state ({error.diag.message_primary}); choose another name, or drop that first"
            ) from error

    def _evolve(self, spec: StateSpec, evolution: Evolution) -> None:
        old, backend = self.get(spec.name), BACKENDS[spec.backend]
        if evolution.rewritten:
            BACKENDS.tables_of(spec).swap(self._conn, old, spec)
        elif evolution.new:
            backend.add_measures(self._conn, old, spec)
        if evolution.dropped:
            self._drop_changelog(StateTable(old))
        if spec.changelog and not old.changelog:
            # As-of reads reach back only to the committed batch, because a new changelog begins with the present rows.
            self._conn.execute(
                "UPDATE tidegauge.state s SET oldest_txid = p.committed_txid FROM tidegauge.pipeline p "
                "WHERE s.name = %s AND p.name = s.pipeline",
                [spec.name],
            )

    def _drop_changelog(self, table: StateTable) -> None:
        tables.drop_changelog(self._conn, table)
        # No past batch can be read any more, because only the changelog still had the rows that expiry has freed.
        self._conn.execute(
            "UPDATE tidegauge.state s SET oldest_txid = greatest(s.oldest_txid, p.committed_txid + 1) "
            "FROM tidegauge.pipeline p WHERE s.name = %s AND p.name = s.pipeline",
            [table.spec.name],
        )

    def _evolution(self, pipeline: str, spec: StateSpec) -> Evolution | None:
        """Return how the declaration differs from the stored one, None for a new state. Raises SpecMismatchError."""
        row = self._conn.execute(ledger_sql("s.pipeline, s.definition::text, p.open_txid"), [spec.name]).fetchone()
        if row is None:
            return None
        owner, held, open_txid = row
        if owner != pipeline:
            raise SpecMismatchError(
                f"state {spec.name!r}: fed by pipeline {owner!r}, so pipeline {pipeline!r} cannot feed it too; choose "
                "another name"
            )
        terms = self._terms(spec.name)
        # A changelog is only dropped if users have turned it on or off, and not because of the code.
        by_hand = "changelog" in terms.edited or not terms.declared_changelog
        evolution = compare(json.loads(held), definition(spec), drops_changelog=by_hand)
        if evolution.refused:
            raise SpecMismatchError(
                f"state {spec.name!r}: its declaration differs from the stored one: "
                f"{'; '.join(evolution.differences)}; {evolution.way_out}"
            )
        if evolution.differences and open_txid is not None and spec.kind == "transactional":
            raise SpecMismatchError(
                f"state {spec.name!r}: {'; '.join(evolution.differences)}, but batch {open_txid} is open and the rows "
                "that it has written are not counted again under another declaration; finish that batch with the "
                "stored declaration first"
            )
        return evolution
