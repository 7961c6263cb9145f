"""Archive: write the committed rows of a state as Parquet, with a manifest, and read them back to verify them.

The folder of a state has `rows.parquet`, `manifest.json` and, if the state has a changelog, `changelog.parquet`. It is
written under a temporary name and renamed after it was read back, so a folder with the state's name is complete.
"""

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from tidegauge.state_backends.committed import is_live
from tidegauge.state_backends.errors import LifeError
from tidegauge.state_backends.extras import OptionalModule
from tidegauge.state_backends.life.settled import Position, settled_rows
from tidegauge.state_backends.schema.definition import definition
from tidegauge.state_backends.spec.state_spec import StateSpec
from tidegauge.state_backends.spec.table import StateTable, columns
from tidegauge.state_backends.spec.types import SqlType, type_of

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
else:
    pa, pq = OptionalModule("pyarrow"), OptionalModule("pyarrow.parquet")

MANIFEST, ROWS, CHANGELOG = "manifest.json", "rows.parquet", "changelog.parquet"
CHUNK_ROWS = 10_000

Row = Mapping[str, Any]


def archive(conn: psycopg.Connection, spec: StateSpec, at: Position, folder: Path) -> dict[str, Any]:
    """Write the state into `folder/<state>`, read it back, and return the manifest.

    An existing archive of the same state, epoch and batch is read back and used. The rows are those that readers see
    now, without removed and expired ones. The caller keeps the state at rest.
    Raises LifeError if the folder has another archive, or if what is read back differs from what was stored.
    """
    target = folder / spec.name
    if target.exists():
        return _known(target, spec, at)
    draft = folder / f".{spec.name}.part"
    # A run that was killed may have left one.
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    files = {ROWS: _write(draft / ROWS, columns_of(spec), _live_rows(conn, spec, at))}
    if spec.changelog:
        files[CHANGELOG] = _write(draft / CHANGELOG, _logged_columns(spec), _entries(conn, spec, at))
    manifest = _manifest(spec, at) | {"files": files}
    (draft / MANIFEST).write_text(json.dumps(manifest, indent=2, default=str) + "\n", encoding="utf-8")
    _check(draft, spec, manifest)
    # Synced before the rename, so that a power failure cannot leave an incomplete archive under the final name.
    for path in (*draft.iterdir(), draft):
        _sync(path)
    draft.rename(target)
    _sync(folder)
    return manifest


def columns_of(spec: StateSpec) -> dict[str, str]:
    """Return the columns of an archived row, name to SQL type: key, stored values, what readers see, batch and time.

    What readers see of a measure has the measure's name, or `<measure>_result` if a stored column has that name. It is
    left out if that stored column has the same type, as for a count.
    """
    stored: dict[str, str] = {**spec.key, **spec.value_columns}
    seen = {name: kind for name, (_, kind) in _results(spec).items()}
    return {**stored, **seen, "txid": "bigint", "updated_at": "timestamptz"}


def _results(spec: StateSpec) -> dict[str, tuple[str, str]]:
    """Return the columns of finished measures: name to measure and SQL type."""
    stored = spec.value_columns
    named = {
        (f"{name}_result" if name in stored else name): (name, measure.result_type)
        for name, measure in spec.measures.items()
        if name not in stored or stored[name] != _plain(measure.result_type)
    }
    return {column: of for column, of in named.items() if column not in stored}


def _plain(sql_type: str) -> str:
    return "numeric" if type_of(sql_type).digits else sql_type


def _live_rows(conn: psycopg.Connection, spec: StateSpec, at: Position) -> Iterator[Row]:
    found = conn.execute("SELECT clock_timestamp()").fetchone()
    assert found is not None
    for key, row in settled_rows(conn, spec, at):
        if row.value is not None and (row.at is None or is_live(False, row.at, spec.ttl, found[0])):
            value = row.value if spec.measures else {"value": row.value}
            finished = spec.finish(row.value) if spec.measures else {}
            results = {column: finished[measure] for column, (measure, _) in _results(spec).items()}
            yield {**dict(zip(spec.key, key, strict=True)), **value, **results, "txid": row.txid, "updated_at": row.at}


def _logged_columns(spec: StateSpec) -> dict[str, str]:
    return {**spec.key, **spec.value_columns, "removed": "boolean", "updated_at": "timestamptz", "txid": "bigint"}


def _entries(conn: psycopg.Connection, spec: StateSpec, at: Position) -> Iterator[Row]:
    table, names = StateTable(spec), list(_logged_columns(spec))
    chosen = sql.SQL(", ").join(
        sql.SQL("{}::text" if kind == "jsonb" else "{}").format(sql.Identifier(name))
        for name, kind in _logged_columns(spec).items()
    )
    query = sql.SQL("SELECT {} FROM {} WHERE txid <= %s ORDER BY {}, txid").format(
        chosen, table.changelog, columns(table.key)
    )
    with conn.cursor() as cursor:
        for row in cursor.stream(query, [at.committed]):
            yield dict(zip(names, row, strict=True))


def _write(path: Path, types: Mapping[str, str], rows: Iterable[Row]) -> dict[str, Any]:
    """Write rows into a file. Returns their number, the digest to compare them with when read back, and the file's."""
    schema, digest, count = _schema(types), sha256(), 0
    remaining = iter(rows)
    with pq.ParquetWriter(path, schema) as writer:
        while chunk := [_arrow_row(types, row) for row in islice(remaining, CHUNK_ROWS)]:
            _add(digest, chunk)
            count += len(chunk)
            writer.write_table(pa.Table.from_pylist(chunk, schema=schema))
    return {"rows": count, "digest": digest.hexdigest(), "sha256": _file_digest(path)}


def _schema(types: Mapping[str, str]) -> "pa.Schema":
    return pa.schema([(name, type_of(kind).arrow) for name, kind in types.items()])


def _arrow_row(types: Mapping[str, str], row: Row) -> Row:
    return {name: _arrow_value(type_of(kind), row[name]) for name, kind in types.items()}


def _arrow_value(kind: SqlType, value: Any) -> Any:
    if value is None or not kind.is_text_in_arrow:
        return value
    if kind.python is object:
        return value if isinstance(value, str) and kind.name == "jsonb" else json.dumps(value, default=str)
    return str(value)


def _add(digest: Any, rows: Iterable[Row]) -> None:
    for row in rows:
        digest.update(json.dumps(list(row.values()), default=str).encode())


def _check(folder: Path, spec: StateSpec, manifest: Mapping[str, Any]) -> None:
    """Raise LifeError unless every file reads back as it was written."""
    for name, file in manifest["files"].items():
        digest, count, path = sha256(), 0, folder / name
        with pq.ParquetFile(path) as parquet:
            for batch in parquet.iter_batches(CHUNK_ROWS):
                rows = batch.to_pylist()
                _add(digest, rows)
                count += len(rows)
        if (count, digest.hexdigest(), _file_digest(path)) != (file["rows"], file["digest"], file["sha256"]):
            raise LifeError(
                f"state {spec.name!r}: {str(path)!r} reads back as {count} rows that differ from the {file['rows']} "
                "that were stored; check the disk, and write the archive elsewhere"
            )


def _manifest(spec: StateSpec, at: Position) -> dict[str, Any]:
    return {
        "state": spec.name,
        "pipeline": at.pipeline,
        "epoch": at.epoch,
        "txid": at.committed,
        "ttl": None if spec.ttl is None else spec.ttl.total_seconds(),
        "definition": definition(spec),
    }


def _known(target: Path, spec: StateSpec, at: Position) -> dict[str, Any]:
    """Return the manifest of the existing archive. Raises LifeError unless it is of this state at this batch."""
    try:
        manifest: dict[str, Any] = json.loads((target / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        manifest = {}
    if any(manifest.get(name) != value for name, value in json.loads(json.dumps(_manifest(spec, at))).items()):
        raise LifeError(
            f"state {spec.name!r}: {str(target)!r} exists and is not an archive of it at batch {at.committed}; choose "
            "another folder"
        )
    _check(target, spec, manifest)
    return manifest


def _file_digest(path: Path) -> str:
    digest = sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
