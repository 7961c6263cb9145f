"""Takes a backup while drivers run: everything in it is as of the same committed batch of each pipeline.

While the ledger's rows are locked, no batch is committed: then a snapshot of the database is taken, and the checkpoints
and the states outside of the database are copied. The database is dumped afterwards, from that snapshot.
"""

import gzip
import json
import os
import shutil
import tarfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path

import psycopg
from django.conf import settings

from tidegauge.pipelines.checkpoint.folder import kept_checkpoint, shadow_checkpoint
from tidegauge.state_backends import BACKENDS, Catalog, StateSpec
from tidegauge.state_backends.schema.definition import definition
from tidegauge.state_backends.schema.roles import PARTS, of_database
from tidegauge.webapp.commands.management.backup import programs
from tidegauge.webapp.commands.management.backup.manifest import (
    DATABASE,
    BackupError,
    Manifest,
    SavedPipeline,
    SavedState,
    secret_key_mark,
)
from tidegauge.webapp.commands.management.version import version

LENGTH = 4  # bytes before each record of a state
QUIET_SECONDS, PAUSE_SECONDS = 60.0, 0.02

# FOR SHARE lets tasks write on, and keeps a batch from being begun or committed.
LOCK = (
    "SELECT name, open_txid, committed_txid, tidegauge.has_driver(name) FROM tidegauge.pipeline ORDER BY name FOR SHARE"
)

# Of the database, not of this code, because a backup is taken before an upgrade migrates the tables.
NEWEST_MIGRATION = """
SELECT to_char(number, 'FM0000') || '_' || name FROM tidegauge.schema_version ORDER BY number DESC LIMIT 1
"""


def save(folder: Path, checkpoints: Mapping[str, Path]) -> Iterator[str]:
    """Write a backup to a folder that does not exist yet; yield what was saved, a line at a time.

    checkpoints: the folder of each pipeline's checkpoint; one that is not there is left out.
    Raises BackupError, ProgramError, BackendUnavailable. The folder appears once it is whole.
    """
    from tidegauge.webapp.catalog import readers

    draft = _draft(folder)
    try:
        with (
            closing(readers.own_connection("a backup")) as ledger,
            closing(readers.own_connection("a backup")) as snapshot,
        ):
            dump = programs.find("pg_dump", ledger.info.server_version)
            outside = _outside(ledger)
            manifest = _manifest(ledger)
            with ledger.transaction():
                locked = _locked(ledger, {pipeline for pipeline, _ in outside})
                manifest.pipelines = [each for each in locked if each.name in checkpoints]  # others are reprocesses
                snapshot.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                [taken] = snapshot.execute("SELECT pg_export_snapshot()").fetchall()
                yield from _save_checkpoints(draft, manifest, checkpoints)
                yield from _save_states(draft, manifest, [spec for _, spec in outside])
            options = ["--format=custom", "--no-password", f"--snapshot={taken[0]}", f"--file={draft / DATABASE}"]
            programs.run([dump, *options], snapshot)
            programs.run([programs.find("pg_restore", ledger.info.server_version), "--list", draft / DATABASE], ledger)
        manifest.add(draft, DATABASE)
        yield f"database: {(draft / DATABASE).stat().st_size} bytes"
        manifest.write(draft)
        os.sync()  # before the folder has its name
        draft.rename(folder)
    except psycopg.errors.LockNotAvailable as error:
        raise BackupError("the ledger was locked for a minute; see pg_stat_activity, and try again") from error
    except OSError as error:
        raise BackupError(f"{str(folder)!r} cannot be written ({error.strerror}); nothing was kept") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)  # does nothing after the rename


def _draft(folder: Path) -> Path:
    if folder.exists():
        raise BackupError(f"{str(folder)!r} exists; name a folder that does not exist yet")
    draft = folder.with_name(f"{folder.name}.partial")
    if draft.exists():
        raise BackupError(
            f"{str(draft)!r} exists: another backup to this folder runs, or was killed; then remove it: `rm -r {draft}`"
        )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft.mkdir(mode=0o700)
    except OSError as error:
        raise BackupError(f"{str(draft)!r} cannot be created ({error.strerror}); name another folder") from error
    return draft


def _manifest(conn: psycopg.Connection) -> Manifest:
    [[schema]] = conn.execute(NEWEST_MIGRATION).fetchall()
    row = conn.execute("SELECT epoch FROM tidegauge.epoch ORDER BY number DESC LIMIT 1").fetchone()
    roles = of_database(conn)
    return Manifest(
        made_at=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        tidegauge=version(),
        server_version=conn.info.server_version,
        schema=schema,
        epoch=row[0] if row else "",
        key_mark=secret_key_mark(settings.SECRET_KEY),
        roles=[roles[part] for part in PARTS] if roles else [],
        pipelines=[],
        states={},
    )


def _outside(conn: psycopg.Connection) -> list[tuple[str, StateSpec]]:
    """Return the states whose rows are not in the database, with the pipeline of each. Raises BackupError."""
    catalog = Catalog(conn)
    found = []
    for name, pipeline in conn.execute("SELECT name, pipeline FROM tidegauge.state ORDER BY name").fetchall():
        spec = catalog.get(name)
        backend = BACKENDS[spec.backend]
        if backend.tables is not None:
            continue
        if backend.archive is None:
            raise BackupError(f"state {name!r}: a backup cannot save states in {backend.title}")
        found.append((pipeline, spec))
    return found


def _locked(conn: psycopg.Connection, quiet: set[str]) -> list[SavedPipeline]:
    """Lock the ledger until the caller's transaction ends. quiet: pipelines that may have no batch open then.

    Raises BackupError if one has a batch open for a minute. A batch that a killed driver has left open does not count.
    """
    conn.execute("SET LOCAL lock_timeout = '60s'")
    deadline = time.monotonic() + QUIET_SECONDS
    while True:
        with conn.transaction() as attempt:
            rows = conn.execute(LOCK).fetchall()
            busy = [name for name, opened, _, driven in rows if name in quiet and opened is not None and driven]
            if busy:
                raise psycopg.Rollback(attempt)  # which releases the locks
        if not busy:
            return [SavedPipeline(name, committed, "") for name, _, committed, _ in rows]
        if time.monotonic() > deadline:
            raise BackupError(
                f"pipeline {busy[0]!r}: its states are outside of the database, and it has had a batch open for "
                f"{QUIET_SECONDS:g} s; pause it for the time of the backup: `tidegauge pipelines pause {busy[0]}`"
            )
        time.sleep(PAUSE_SECONDS)


def _save_checkpoints(folder: Path, manifest: Manifest, checkpoints: Mapping[str, Path]) -> Iterator[str]:
    for place, pipeline in enumerate(manifest.pipelines):
        source = checkpoints[pipeline.name]
        if not source.is_dir():
            yield f"pipeline {pipeline.name}: no checkpoint in {str(source)!r}; the ledger is enough to rebuild it"
            continue
        file = f"checkpoint-{place}.tar.gz"
        with tarfile.open(folder / file, "w:gz", compresslevel=1) as archive:
            for name, part in _checkpoint_folders(source).items():
                _pack(archive, part, name)
        manifest.pipelines[place] = SavedPipeline(pipeline.name, pipeline.committed_txid, file)
        manifest.add(folder, file)
        yield f"pipeline {pipeline.name}: batch {pipeline.committed_txid}, checkpoint {str(source)!r}"


def _checkpoint_folders(checkpoint: Path) -> dict[str, Path]:
    """Return the pipeline's checkpoint and those of a reprocess, by their names in the archive."""
    found = {"own": checkpoint, "reprocess": shadow_checkpoint(checkpoint), "kept": kept_checkpoint(checkpoint)}
    return {name: Path(str(folder)) for name, folder in found.items() if Path(str(folder)).is_dir()}


def _pack(archive: tarfile.TarFile, folder: Path, name: str) -> None:
    """Add the files of a checkpoint, the last written first.

    Spark writes the files of its sources before the offsets of a batch, and its note that the batch is done last. So
    what is copied in the opposite order is a state in which a crash could leave the folder.
    """
    order = {"commits": 0, "offsets": 1}
    for top in sorted(folder.iterdir(), key=lambda path: order.get(path.name, 2)):
        # Listed only now, after what is written later was copied.
        for file in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if file.is_file() and file.suffix != ".tmp":
                with suppress(FileNotFoundError):  # Spark removes what is old
                    archive.add(file, f"{name}/{file.relative_to(folder)}", recursive=False)


def _save_states(folder: Path, manifest: Manifest, specs: Iterable[StateSpec]) -> Iterator[str]:
    for place, spec in enumerate(specs):
        archive, file = BACKENDS[spec.backend].archive, f"state-{place}.gz"
        assert archive is not None
        with gzip.open(folder / file, "wb", compresslevel=1) as out:
            for record in archive.save(spec):
                out.write(len(record).to_bytes(LENGTH, "big") + record)
        manifest.states[spec.name] = SavedState(file, spec.backend, json.dumps(definition(spec)))
        manifest.add(folder, file)
        yield f"state {spec.name} in {BACKENDS[spec.backend].title}"
