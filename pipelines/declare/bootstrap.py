"""Bootstrap sources: those that a pipeline reads before its other sources, up to the end that their input has then.

A query that ends with its input comes first, over the same checkpoint. All sources are in it, so that a batch that was
planned before is read as it was; but the others wait: no batch that is planned in it holds anything of them.
The feature is Samza's bootstrap streams.
"""

from typing import TYPE_CHECKING

from tidegauge.pipelines.errors import PipelineError
from tidegauge.pipelines.sources.source import GivenSource, WaitingSource

if TYPE_CHECKING:
    from tidegauge.pipelines.declare.pipeline import Pipeline


def check_bootstrap(pipeline: "Pipeline") -> None:
    """Raise PipelineError where the order of the sources cannot be kept."""
    if not pipeline.bootstrap:
        return
    fault = _fault(pipeline)
    if fault:
        raise PipelineError(f"pipeline {pipeline.name!r}: bootstrap: {fault}")


def _fault(pipeline: "Pipeline") -> str:
    for source in pipeline.bootstrap:
        if source not in pipeline.sources:
            return f"no stream reads {source}; give the object that Stream.read was given"
        if isinstance(source, GivenSource):
            return "rows that an application gives come in the order of its own query; leave bootstrap out"
        if source.spout == "non_transactional":
            return f"{source} has no end to be read to; give a source that keeps its input"
    if not pipeline.waiting:
        return "names all sources, so none would wait; leave out those that look up what the others fill"
    for source in pipeline.waiting:
        if not isinstance(source, WaitingSource):
            return f"{source} cannot wait; read it in a pipeline of its own, which looks up in the states of this one"
    if pipeline.ticks is not None:
        # It would have no tuples meanwhile, so that time would go on without it and its tuples come too late.
        return "a stream that waits would be taken for idle; leave out idle_after"
    return ""
