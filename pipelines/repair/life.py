"""What a retired pipeline leaves outside of the ledger, and which pipelines still read a state.

Its checkpoint is a folder, and a server may keep something for a source, such as a replication slot. Only the
declarations say which pipelines read a state by `state_query`.
"""

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

from tidegauge.pipelines.checkpoint.files import MARK, CheckpointPath, remove
from tidegauge.pipelines.checkpoint.folder import LAST_BATCH, checkpoint_id, kept_checkpoint, shadow_checkpoint
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.driver.discovery import Declaration, Search, places
from tidegauge.pipelines.errors import PipelineError
from tidegauge.pipelines.sources.source import HeldSource

# What Spark and Tidegauge write into a checkpoint. Everything else in the folder is the user's and is kept.
OURS = (MARK, f".{MARK}.crc", "offsets", "commits", "sources", "state", LAST_BATCH)

logger = logging.getLogger(__name__)


def readers_of(state: str, declarations: Iterable[Declaration] | None = None) -> Iterator[str]:
    """Yield a sentence for each declared pipeline that feeds a state or looks up in it.

    declarations: the user's, by default. A declaration that cannot be read is logged, because its states are unknown.
    """
    for declared in _declared() if declarations is None else declarations:
        try:
            pipeline = declared.pipeline()
        except PipelineError as error:
            logger.warning("its states are not known: %s", error)
            continue
        if state in {fed.name for fed in pipeline.ordered}:
            yield f"pipeline {pipeline.name!r} ({declared}) declares it"
        elif state in pipeline.queried:
            yield f"pipeline {pipeline.name!r} ({declared}) looks up in it"


def _declared() -> list[Declaration]:
    search = Search(places())
    for failure in search.failures:
        logger.warning("pipelines of a module cannot be found: %s", failure)
    return search.declarations


def held_sources(pipeline: Pipeline) -> list[HeldSource]:
    """Return the sources for which a server keeps something, such as a replication slot."""
    return [source for source in pipeline.sources if isinstance(source, HeldSource)]


def drop_sources(pipeline: Pipeline) -> Iterator[str]:
    """Drop what servers keep for the pipeline's sources; yields a line for each source."""
    for source in held_sources(pipeline):
        source.drop()
        yield f"{source}: dropped what its server kept for the pipeline"


def drop_checkpoint(folder: CheckpointPath, bound: str | None) -> Iterator[str]:
    """Remove the checkpoint that the ledger was bound to, and the folders that a reprocess has put beside it.

    A folder that belongs to another query is kept, and so are files that are not part of a checkpoint.
    """
    if not folder.exists():
        return
    if bound is None or checkpoint_id(folder) != bound:
        yield f"checkpoint {str(folder)!r}: is not the one that the ledger was bound to, so it is kept"
        return
    for beside in (shadow_checkpoint(folder), kept_checkpoint(folder)):
        remove(beside)
    # The file with the id is removed last, so that after a crash the next call still recognizes the folder.
    for name in reversed(OURS):
        path = folder / name
        if isinstance(path, Path) and not path.is_dir():
            path.unlink(missing_ok=True)
        else:
            remove(path)
    others = sorted(path.name for path in folder.iterdir())
    if not others:
        remove(folder)
    yield f"checkpoint {str(folder)!r}: removed" + (f", but for {', '.join(others)}" if others else "")
