"""Manifest: what a backup contains, and the checks that it is whole and fits this installation."""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tidegauge.pipelines.embedded.data_dir import write_private
from tidegauge.state_backends.schema.install import migrations

NAME = "manifest.json"
FORMAT = 1
DATABASE = "database.dump"


class BackupError(Exception):
    """A backup cannot be made, is damaged, or does not fit; the message says what to do."""


@dataclass(frozen=True)
class SavedPipeline:
    """A pipeline at the time of the backup. checkpoint: its file in the backup; "" if none was found."""

    name: str
    committed_txid: int
    checkpoint: str


@dataclass(frozen=True)
class SavedState:
    """A state outside of the database. definition: as the catalog stores it, as JSON."""

    file: str
    backend: str
    definition: str


@dataclass
class Manifest:
    """server_version: libpq's number. schema: the last applied migration. files: name to size in bytes and SHA-256.

    states: those outside of the database. key_mark: distinguishes SECRET_KEYs.
    """

    made_at: str
    tidegauge: str
    server_version: int
    schema: str
    epoch: str
    key_mark: str
    roles: list[str]
    pipelines: list[SavedPipeline]
    states: dict[str, SavedState]
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    format: int = FORMAT

    def add(self, folder: Path, name: str) -> None:
        """Add a file that was written."""
        self.files[name] = {"bytes": (folder / name).stat().st_size, "sha256": _digest(folder / name)}

    def write(self, folder: Path) -> None:
        write_private(folder / NAME, json.dumps(asdict(self), indent=2) + "\n")


def read(folder: Path) -> Manifest:
    """Return the manifest of a backup, once every file is as it was written. Raises BackupError."""
    try:
        given = json.loads((folder / NAME).read_text(encoding="utf-8"))
        if given["format"] != FORMAT:
            raise BackupError(
                f"backup {str(folder)!r}: its format is {given['format']}, and this version reads {FORMAT}; restore it "
                f"with tidegauge {given['tidegauge']}"
            )
        pipelines = [SavedPipeline(**each) for each in given["pipelines"]]
        states = {name: SavedState(**each) for name, each in given["states"].items()}
        manifest = Manifest(**{**given, "pipelines": pipelines, "states": states})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BackupError(f"backup {str(folder)!r}: no {NAME} that can be read; give the folder of a backup") from error
    for name, known in manifest.files.items():
        file = folder / name
        if not file.is_file():
            raise BackupError(f"backup {str(folder)!r}: {name} is missing; take another backup")
        if file.stat().st_size != known["bytes"] or _digest(file) != known["sha256"]:
            raise BackupError(f"backup {str(folder)!r}: {name} is not as it was written; take another backup")
    _check_version(folder, manifest)
    return manifest


def secret_key_mark(secret_key: str) -> str:
    """Return what tells two keys apart and does not show them."""
    return hashlib.sha256(f"tidegauge backup {secret_key}".encode()).hexdigest()[:16]


def schema_name() -> str:
    """Return the last migration of this version."""
    return str(migrations()[-1])


def _check_version(folder: Path, manifest: Manifest) -> None:
    if manifest.schema not in map(str, migrations()):
        raise BackupError(
            f"backup {str(folder)!r}: its tables are of a later version (migration {manifest.schema!r}); restore it "
            f"with tidegauge {manifest.tidegauge}, which made it, or a later one"
        )


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
