"""Restores a backup into an empty database, checkpoint folders that do not exist, and stores without the states."""

import gzip
import json
import shutil
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psycopg
from django.conf import settings

from tidegauge.pipelines.checkpoint.folder import kept_checkpoint, shadow_checkpoint
from tidegauge.state_backends import BACKENDS, StateSpec
from tidegauge.state_backends.schema.definition import from_definition
from tidegauge.state_backends.session import check_version
from tidegauge.webapp.commands.management.backup import manifest as manifests
from tidegauge.webapp.commands.management.backup import programs
from tidegauge.webapp.commands.management.backup.manifest import DATABASE, BackupError, Manifest
from tidegauge.webapp.commands.management.backup.save import LENGTH
from tidegauge.webapp.commands.management.backup.targets import check_names

TABLES = """
SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm') AND n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema'
ORDER BY n.nspname <> 'tidegauge', 1 LIMIT 3
"""
MISSING_ROLES = "SELECT name FROM unnest(%s::text[]) AS name WHERE to_regrole(name) IS NULL"


def load(folder: Path, checkpoints: Mapping[str, Path], default: Path) -> Iterator[str]:
    """Restore a backup; yield what was restored and what to type next, a line at a time.

    checkpoints: where those of some pipelines go; the others go to folders of their names in `default`.
    Everything is checked before anything is written. Raises BackupError, ProgramError, TidegaugeError.
    """
    from tidegauge.webapp.catalog import readers

    manifest = manifests.read(folder)
    targets = {each.name: checkpoints.get(each.name, default / each.name) for each in manifest.pipelines}
    check_names(checkpoints, targets)
    with closing(readers.own_connection("a restore")) as conn:
        specs = _check(conn, manifest, targets)
        missing = [name for (name,) in conn.execute(MISSING_ROLES, [manifest.roles]).fetchall()]
        program = programs.find("pg_restore", conn.info.server_version)
        try:
            for spec in specs:
                _load_state(folder, manifest, spec)
                yield f"state {spec.name} in {BACKENDS[spec.backend].title}"
            owners = ["--no-owner", "--no-privileges"] if missing or not manifest.roles else []
            programs.run(
                [program, "--no-password", "--exit-on-error", "--single-transaction", *owners,
                 f"--dbname={conn.info.dbname}", folder / DATABASE],
                conn,
            )  # fmt: skip
        except BaseException:
            # The database is as empty as before; what was stored outside of it must not keep the next try from it.
            for spec in specs:
                BACKENDS[spec.backend].drop(conn, replace(spec, changelog=False))
            raise
        yield f"database of {manifest.made_at}, by tidegauge {manifest.tidegauge}"
    yield from _unpack(folder, manifest, targets)
    yield from _next_steps(manifest, targets, default, missing)


def _check(conn: psycopg.Connection, manifest: Manifest, targets: Mapping[str, Path]) -> list[StateSpec]:
    """Return the states outside of the database. Raises BackupError for whatever does not fit."""
    check_version(conn.info.server_version)
    if conn.info.server_version // 10_000 < manifest.server_version // 10_000:
        raise BackupError(
            f"the backup is of PostgreSQL {manifest.server_version // 10_000}, and the server is "
            f"{conn.info.server_version // 10_000}; restore into the same version or a later one"
        )
    if tables := [name for (name,) in conn.execute(TABLES).fetchall()]:
        raise BackupError(
            f"database {conn.info.dbname!r} is not empty ({', '.join(tables)}, ..); name a new one in DATABASE_URL: "
            f"`createdb {conn.info.dbname}_restored`"
        )
    for name, target in targets.items():
        for each in (target, shadow_checkpoint(target), kept_checkpoint(target)):
            if Path(str(each)).exists():
                raise BackupError(
                    f"pipeline {name!r}: a checkpoint is in {str(each)!r}; move it away: `mv {each} {each}.old`"
                )
    specs = [
        from_definition(name, json.loads(saved.definition), None) for name, saved in manifest.states.items()
    ]  # the ttl is the catalog's
    for spec in specs:
        BACKENDS[spec.backend].check()
        BACKENDS[spec.backend].check_new(conn, spec)
    return specs


def _load_state(folder: Path, manifest: Manifest, spec: StateSpec) -> None:
    archive = BACKENDS[spec.backend].archive
    assert archive is not None
    with gzip.open(folder / manifest.states[spec.name].file) as file:
        archive.load(spec, _records(file))


def _records(file: gzip.GzipFile) -> Iterator[bytes]:
    while length := file.read(LENGTH):
        yield file.read(int.from_bytes(length, "big"))


def _unpack(folder: Path, manifest: Manifest, targets: Mapping[str, Path]) -> Iterator[str]:
    for pipeline in manifest.pipelines:
        if not pipeline.checkpoint:
            continue
        target = targets[pipeline.name]
        try:
            _unpack_one(folder / pipeline.checkpoint, target)
        except OSError as error:
            raise BackupError(
                f"the database was restored, and checkpoint {str(target)!r} cannot be written ({error.strerror}); make "
                f"it from the ledger: `tidegauge pipelines restore-checkpoint {pipeline.name}`"
            ) from error
        yield f"checkpoint {str(target)!r}"


def _unpack_one(file: Path, target: Path) -> None:
    """Unpack beside the target and rename, so that a checkpoint is there as a whole or not at all."""
    draft = target.with_name(f"{target.name}.restoring")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    with tarfile.open(file) as archive:
        # Python 3.11.2, which Debian 12 has, knows no filters; later versions warn without one.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(draft, _checked(archive, draft))  # noqa: S202  (each member is checked)
    places = {"own": target, "reprocess": shadow_checkpoint(target), "kept": kept_checkpoint(target)}
    for part in draft.iterdir():
        part.rename(Path(str(places[part.name])))
    draft.rmdir()


def _checked(archive: tarfile.TarFile, draft: Path) -> Iterator[tarfile.TarInfo]:
    """Yield the members of an archive. Raises BackupError for one that no checkpoint has, such as a link."""
    for member in archive.getmembers():
        is_inside = (draft / member.name).resolve().is_relative_to(draft.resolve())
        if not is_inside or not (member.isfile() or member.isdir()):
            raise BackupError(
                f"{Path(str(archive.name)).name}: {member.name!r} is not part of a checkpoint; the archive was changed"
            )
        yield member


def _next_steps(manifest: Manifest, targets: Mapping[str, Path], default: Path, missing: list[str]) -> Iterator[str]:
    if manifest.schema != manifests.schema_name():
        yield "the tables are of an earlier version: `tidegauge migrate`"
    if missing:
        yield f"the roles {', '.join(missing)} do not exist on this server: `tidegauge roles --ask`"
    if manifest.key_mark != manifests.secret_key_mark(settings.SECRET_KEY):
        yield (
            "SECRET_KEY is not the one of the backup: people have to sign in again, and webhooks stop until their "
            "secrets are rotated; set the former one to avoid that"
        )
    for pipeline in manifest.pipelines:
        name, target = pipeline.name, targets[pipeline.name]
        where = "" if target == default / name else f" --checkpoint {target}"
        if not pipeline.checkpoint:
            yield f"{name}: `tidegauge pipelines restore-checkpoint {name}{where}`, then"
        yield f"{name} continues after batch {pipeline.committed_txid}: `tidegauge run {name}{where}`"
