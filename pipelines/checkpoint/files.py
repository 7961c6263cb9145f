"""The files of a checkpoint: local ones, or files of a store that Spark reaches by Hadoop's file system API.

A `StorePath` has the methods of `Path` that checkpoint code needs, so that one implementation serves both. Stores
differ in one point: HDFS renames a file or a folder atomically, while object stores copy file by file. In an object
store a file is written directly, because it is visible only when it is complete, and a folder is copied (see `move`).
"""

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tidegauge.pipelines.errors import CheckpointUnreachableError, PipelineError

if TYPE_CHECKING:
    from pyspark import SparkContext

# A scheme, as in `s3a://bucket/folder`. One slash is enough, because Path turns the two slashes into one.
URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(/.*)")

# Stores with an atomic rename. Any other is treated as an object store, which is correct for every store, but slower.
RENAMES_AT_ONCE = frozenset({"hdfs", "webhdfs", "swebhdfs", "viewfs", "ofs"})

HADOOP = "org.apache.hadoop"

MARK = "metadata"  # the file that identifies a checkpoint; it has the id of Spark's query


class StoreStat(NamedTuple):
    """The part of `os.stat_result` that is needed of a file in a store: its length in bytes."""

    st_size: int


class StorePath:
    """A file or folder of a store, by its URI. Needs a Spark session, whose `spark.hadoop.*` settings it uses.

    Raises FileNotFoundError as `Path` does, PipelineError if Spark has no file system for the store, and
    CheckpointUnreachableError if the store does not answer or refuses.
    """

    def __init__(self, uri: str, size: int | None = None) -> None:
        self.uri = uri.rstrip("/")
        self._size = size

    def __str__(self) -> str:
        return self.uri

    def __repr__(self) -> str:
        return f"StorePath({self.uri!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StorePath) and self.uri == other.uri

    def __hash__(self) -> int:
        return hash(self.uri)

    def __truediv__(self, name: str) -> "StorePath":
        return StorePath(f"{self.uri}/{name}")

    @property
    def name(self) -> str:
        return self.uri.rpartition("/")[2]

    @property
    def renames_at_once(self) -> bool:
        return self.uri.partition(":")[0].lower() in RENAMES_AT_ONCE

    def with_name(self, name: str) -> "StorePath":
        return StorePath(f"{self.uri.rpartition('/')[0]}/{name}")

    def absolute(self) -> "StorePath":
        return self

    def exists(self) -> bool:
        with self._asked() as (files, path):
            return bool(files.exists(path))

    def is_dir(self) -> bool:
        try:
            with self._asked() as (files, path):
                return bool(files.getFileStatus(path).isDirectory())
        except FileNotFoundError:
            return False

    def stat(self) -> StoreStat:
        if self._size is None:
            with self._asked() as (files, path):
                self._size = int(files.getFileStatus(path).getLen())
        return StoreStat(self._size)

    def iterdir(self) -> Iterator["StorePath"]:
        with self._asked() as (files, path):
            found = [(each.getPath().getName(), each.getLen()) for each in files.listStatus(path)]
        return (StorePath(f"{self.uri}/{name}", int(size)) for name, size in found)

    def read_bytes(self) -> bytes:
        with self._asked() as (files, path):
            stream = files.open(path)
            try:
                return bytes(_class("org.apache.commons.io.IOUtils").toByteArray(stream))
            finally:
                stream.close()

    def read_text(self, encoding: str = "utf-8") -> str:
        return self.read_bytes().decode(encoding)

    def write_text(self, text: str, encoding: str = "utf-8") -> None:
        """Write a file, and replace an existing one; an object store shows it once it is complete."""
        with self._asked() as (files, path):
            stream = files.create(path, True)
            try:
                stream.write(bytearray(text.encode(encoding)))
                # hsync, because HDFS may keep a closed file only in memory. An object store does not need it.
                stream.hsync() if stream.hasCapability("hsync") else stream.flush()
            finally:
                stream.close()

    def mkdir(self, *, parents: bool = True) -> None:
        with self._asked() as (files, path):
            files.mkdirs(path)

    def replace(self, target: "StorePath") -> None:
        """Rename a file, and replace the target if it exists."""
        if not self.renames_at_once:
            return self.copy(target, delete=True)
        with self._asked() as (_files, path):
            context, overwrite = _class(f"{HADOOP}.fs.FileContext"), _class(f"{HADOOP}.fs.Options$Rename")
            options = _gateway().new_array(overwrite, 1)
            options[0] = overwrite.OVERWRITE
            context.getFileContext(path.toUri(), _conf()).rename(path, _java_path(target), options)

    def rename(self, target: "StorePath") -> None:
        """Rename a folder, in a store with an atomic rename. `target` must not exist."""
        with self._asked() as (files, path):
            if not files.rename(path, _java_path(target)):
                raise CheckpointUnreachableError(f"checkpoint {self.uri!r}: cannot be renamed to {target.uri!r}")

    def copy(self, target: "StorePath", *, delete: bool = False) -> None:
        """Copy a file or a folder within its store, over an existing one. delete: remove the source afterwards."""
        with self._asked() as (files, path):
            _class(f"{HADOOP}.fs.FileUtil").copy(files, path, files, _java_path(target), delete, True, _conf())

    def remove(self) -> None:
        """Delete a file, or a folder with everything in it, if it exists."""
        with self._asked() as (files, path):
            files.delete(path, True)

    @contextmanager
    def _asked(self) -> Iterator[tuple[Any, Any]]:
        """Yield Hadoop's file system and path, and convert Java's exceptions to our errors."""
        # Imported here, because options are checked before Spark is loaded, and a local folder does not need it.
        from py4j.protocol import Py4JJavaError

        try:
            path = _java_path(self)
            yield path.getFileSystem(_conf()), path
        except Py4JJavaError as error:
            raise self._as_ours(error.java_exception) from error

    def _as_ours(self, error: Any) -> Exception:
        kind, said = str(error.getClass().getName()), str(error.toString()).splitlines()[0]
        if kind == "java.io.FileNotFoundException":
            return FileNotFoundError(self.uri)
        is_io = _class("java.lang.Class").forName("java.io.IOException").isInstance(error)
        if is_io and not kind.endswith("UnsupportedFileSystemException"):
            return CheckpointUnreachableError(
                f"checkpoint {self.uri!r}: its store does not answer, or refuses: {said}; see that it can be reached, "
                "and that the settings spark.hadoop.* name it and an account that may read, write and delete there"
            )
        return PipelineError(
            f"checkpoint {self.uri!r}: Spark has no file system for it: {said}; give Spark its jars, such as --conf "
            f"spark.jars.packages=org.apache.hadoop:hadoop-aws:{_class(f'{HADOOP}.util.VersionInfo').getVersion()} "
            "for s3a, or mount the store and give the folder where it is mounted"
        )


CheckpointPath = Path | StorePath


def checkpoint_folder(given: CheckpointPath | str) -> CheckpointPath:
    """Return the folder of a checkpoint: a local one, given as a path or a `file:` URI, or one in a store, by its URI.

    Raises PipelineError for a `file:` URI with a host, and for a URI without a folder.
    """
    uri = URI.fullmatch(str(given))
    if uri is None or isinstance(given, StorePath):
        return Path(given) if not isinstance(given, StorePath) else given
    scheme, path = uri.groups()
    if scheme.lower() != "file":
        return _store_folder(given, path)
    # Nothing is decoded, because Spark does not either. A `//` is followed by a host, which for a local file is empty.
    local = re.fullmatch(r"(?://(?:localhost)?)?(/(?!/).*)", path)
    if local is None:
        raise PipelineError(
            f"checkpoint {str(given)!r}: a file: URI names a folder of this machine, as 'file:///path'; mount the file "
            "system of the other one, and give the path where it is mounted"
        )
    return Path(local.group(1))


def _store_folder(given: Path | str, path: str) -> StorePath:
    # A host may be left out, as in `dbfs:/folder`. A Path is refused, because it has lost whether there was a host.
    if isinstance(given, Path) or not re.fullmatch(r"//[^/]*(/+[^/]+)+/*|(/[^/]+)+/*", path):
        raise PipelineError(
            f"checkpoint {str(given)!r}: names no folder of a store; write scheme://host/folder, such as "
            "'s3a://bucket/checkpoints/orders', as text and not as a Path"
        )
    return StorePath(given)


def as_location(folder: CheckpointPath) -> str:
    """Return a folder as a URI with a scheme, because Spark's default file system may not be the local one."""
    return folder.uri if isinstance(folder, StorePath) else f"file://{folder.absolute()}"


def write_whole(file: CheckpointPath, text: str) -> None:
    """Write a file atomically: readers see the old or the new content, never a part."""
    if isinstance(file, StorePath) and not file.renames_at_once:
        file.write_text(text)
        return
    draft = file.with_name(f".{file.name}.new")
    draft.write_text(text)
    draft.replace(file)  # type: ignore[arg-type]


def remove(folder: CheckpointPath) -> None:
    """Remove a folder with everything in it, if it exists."""
    if isinstance(folder, StorePath):
        folder.remove()
    else:
        shutil.rmtree(folder, ignore_errors=True)


def move(source: CheckpointPath, target: CheckpointPath) -> None:
    """Move a checkpoint, and replace the target if it exists. Safe to call again after a crash.

    If a store has no atomic rename, the file that identifies a checkpoint is copied last and deleted first. Thus always
    at least one of the two folders is a complete checkpoint, and the other may be the rest of an interrupted move.
    """
    if isinstance(source, Path) or source.renames_at_once:
        remove(target)
        source.rename(target)  # type: ignore[arg-type]
        return
    assert isinstance(target, StorePath)
    if (source / MARK).exists() or not (target / MARK).exists():
        target.remove()
        _copy_folder(source, target)
    (source / MARK).remove()
    source.remove()


def _copy_folder(source: StorePath, target: StorePath) -> None:
    target.mkdir()
    for each in sorted(source.iterdir(), key=lambda each: each.name == MARK):
        each.copy(target / each.name)


def _java_path(path: StorePath) -> Any:
    return _class(f"{HADOOP}.fs.Path")(path.uri)


def _conf() -> Any:
    return _context()._jsc.hadoopConfiguration()


def _class(name: str) -> Any:
    # Imported here for the same reason as in `_asked`.
    from tidegauge.pipelines.spark.java_classes import java_class

    return java_class(_context()._jvm, name)


def _gateway() -> Any:
    return _context()._gateway


def _context() -> "SparkContext":
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is None:
        raise PipelineError("a checkpoint in a store is read through Spark; start a session first")
    return context


def compact_json(value: Any) -> str:
    """Return JSON as Spark writes it, without the spaces that `json.dumps` puts after each colon and comma."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
