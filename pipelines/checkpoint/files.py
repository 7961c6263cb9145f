"""The files of a checkpoint: of this machine, or of a store that Spark reaches by Hadoop's file system API.

A `StorePath` has the methods of `Path` that the code of checkpoints needs, so that code is written once. Stores differ
in one thing: HDFS renames a file or a folder at once, while object stores copy what is renamed, file by file. There a
file is written in its place, since it appears when it is whole, and a folder is copied (see `move`).
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

# A scheme, as in `s3a://bucket/folder`; Path has turned the two slashes into one if the text went through it.
URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(/.*)")

# Stores whose rename is one step. Any other is taken for an object store, which is right for every store, but slower.
RENAMES_AT_ONCE = frozenset({"hdfs", "webhdfs", "swebhdfs", "viewfs", "ofs"})

MARK = "metadata"  # the file by which a checkpoint is known; it has the id of Spark's query


class StoreStat(NamedTuple):
    """What is asked of a file in a store: its length in bytes."""

    st_size: int


class StorePath:
    """A file or folder of a store, by its URI. Needs a Spark session, whose `spark.hadoop.*` settings it uses.

    Raises FileNotFoundError as `Path` does, PipelineError where Spark cannot reach such a store, and
    CheckpointUnreachableError where it cannot at the moment.
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
                return bytes(_jvm().org.apache.commons.io.IOUtils.toByteArray(stream))
            finally:
                stream.close()

    def read_text(self, encoding: str = "utf-8") -> str:
        return self.read_bytes().decode(encoding)

    def write_text(self, text: str, encoding: str = "utf-8") -> None:
        """Write a file, in place of the one there may be; a store of objects shows it once it is whole."""
        with self._asked() as (files, path):
            stream = files.create(path, True)
            try:
                stream.write(bytearray(text.encode(encoding)))
                # What HDFS has closed may be in the memory of its machines alone; an object store takes no notice.
                stream.hsync() if stream.hasCapability("hsync") else stream.flush()
            finally:
                stream.close()

    def mkdir(self, *, parents: bool = True) -> None:
        with self._asked() as (files, path):
            files.mkdirs(path)

    def replace(self, target: "StorePath") -> None:
        """Rename a file over the one there may be."""
        if not self.renames_at_once:
            return self.copy(target, delete=True)
        with self._asked() as (_files, path):
            context, overwrite = _jvm().org.apache.hadoop.fs.FileContext, _jvm().org.apache.hadoop.fs.Options.Rename
            options = _gateway().new_array(overwrite, 1)
            options[0] = overwrite.OVERWRITE
            context.getFileContext(path.toUri(), _conf()).rename(path, _java_path(target), options)

    def rename(self, target: "StorePath") -> None:
        """Rename a folder, in a store that does so at once. Nothing is at `target`."""
        with self._asked() as (files, path):
            if not files.rename(path, _java_path(target)):
                raise CheckpointUnreachableError(f"checkpoint {self.uri!r}: cannot be renamed to {target.uri!r}")

    def copy(self, target: "StorePath", *, delete: bool = False) -> None:
        """Copy a file or a folder within its store, over what there is; with `delete`, remove it then."""
        with self._asked() as (files, path):
            _jvm().org.apache.hadoop.fs.FileUtil.copy(files, path, files, _java_path(target), delete, True, _conf())

    def remove(self) -> None:
        """Delete a file, or a folder with all that is in it, if there is one."""
        with self._asked() as (files, path):
            files.delete(path, True)

    @contextmanager
    def _asked(self) -> Iterator[tuple[Any, Any]]:
        """Give Hadoop's file system and path, and raise what Java raises as an error of ours."""
        # Imported here, since options are checked before Spark is loaded, and a folder of this machine needs none.
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
        jvm = _jvm()
        is_io = jvm.java.lang.Class.forName("java.io.IOException").isInstance(error)
        if is_io and not kind.endswith("UnsupportedFileSystemException"):
            return CheckpointUnreachableError(
                f"checkpoint {self.uri!r}: its store does not answer, or refuses: {said}; see that it can be reached, "
                "and that the settings spark.hadoop.* name it and an account that may read, write and delete there"
            )
        return PipelineError(
            f"checkpoint {self.uri!r}: Spark has no file system for it: {said}; give Spark its jars, such as --conf "
            f"spark.jars.packages=org.apache.hadoop:hadoop-aws:{jvm.org.apache.hadoop.util.VersionInfo.getVersion()} "
            "for s3a, or mount the store and give the folder where it is mounted"
        )


CheckpointPath = Path | StorePath


def checkpoint_folder(given: CheckpointPath | str) -> CheckpointPath:
    """Return the folder of a checkpoint: of this machine, given as a path or a `file:` URI, or of a store, by its URI.

    Raises PipelineError for a URI that names a host of files, or no folder.
    """
    uri = URI.fullmatch(str(given))
    if uri is None or isinstance(given, StorePath):
        return Path(given) if not isinstance(given, StorePath) else given
    scheme, path = uri.groups()
    if scheme.lower() != "file":
        return _store_folder(given, path)
    # As Spark reads it: nothing is decoded. A `//` is followed by a host, which for a local file is empty.
    local = re.fullmatch(r"(?://(?:localhost)?)?(/(?!/).*)", path)
    if local is None:
        raise PipelineError(
            f"checkpoint {str(given)!r}: a file: URI names a folder of this machine, as 'file:///path'; mount the file "
            "system of the other one, and give the path where it is mounted"
        )
    return Path(local.group(1))


def _store_folder(given: Path | str, path: str) -> StorePath:
    # A host may be left out, as in `dbfs:/folder`; of a Path it is not known whether it was.
    if isinstance(given, Path) or not re.fullmatch(r"//[^/]*(/+[^/]+)+/*|(/[^/]+)+/*", path):
        raise PipelineError(
            f"checkpoint {str(given)!r}: names no folder of a store; write scheme://host/folder, such as "
            "'s3a://bucket/checkpoints/orders', as text and not as a Path"
        )
    return StorePath(given)


def as_location(folder: CheckpointPath) -> str:
    """Return a folder as Spark is told it: its own default may be another file system than this machine's."""
    return folder.uri if isinstance(folder, StorePath) else f"file://{folder.absolute()}"


def write_whole(file: CheckpointPath, text: str) -> None:
    """Write a file so that readers see the one before or this one, never a part."""
    if isinstance(file, StorePath) and not file.renames_at_once:
        file.write_text(text)
        return
    draft = file.with_name(f".{file.name}.new")
    draft.write_text(text)
    draft.replace(file)  # type: ignore[arg-type]


def remove(folder: CheckpointPath) -> None:
    """Remove a folder with all that is in it, if there is one."""
    if isinstance(folder, StorePath):
        folder.remove()
    else:
        shutil.rmtree(folder, ignore_errors=True)


def move(source: CheckpointPath, target: CheckpointPath) -> None:
    """Move a checkpoint in place of the one there may be. It is safe to call again after a crash.

    Where a store cannot rename at once, the file by which a checkpoint is known is copied last and deleted first: so
    one of the two folders is known, and what else is left of the other is the rest of a move.
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
    return _jvm().org.apache.hadoop.fs.Path(path.uri)


def _conf() -> Any:
    return _context()._jsc.hadoopConfiguration()


def _jvm() -> Any:
    return _context()._jvm


def _gateway() -> Any:
    return _context()._gateway


def _context() -> "SparkContext":
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is None:
        raise PipelineError("a checkpoint in a store is read through Spark; start a session first")
    return context


def compact_json(value: Any) -> str:
    """Return JSON as Spark writes it. Python's readers put a space after each colon and comma."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
