"""Bootstrap sources: a pipeline reads them before its other sources, up to the end that their input has at the start.

A query over the same checkpoint runs first and ends when the bootstrap input ends. It contains all sources, so that a
batch that was planned earlier is read again as planned, but the other sources wait: new batches of this query hold none
of their input. The feature is Samza's bootstrap streams.
"""

from typing import TYPE_CHECKING

from tidegauge.pipelines.errors import PipelineError
from tidegauge.pipelines.sources.source import GivenSource, WaitingSource

if TYPE_CHECKING:
    from tidegauge.pipelines.declare.pipeline import Pipeline


def check_bootstrap(pipeline: "Pipeline") -> None:
    """Raise PipelineError if the sources cannot be read in this order."""
    if not pipeline.bootstrap:
        return
    fault = _fault(pipeline)
    if fault:
        raise PipelineError(f"pipeline {pipeline.name!r}: bootstrap: {fault}")


def _fault(pipeline: "Pipeline") -> str:
    for source in pipeline.bootstrap:
        if source not in pipeline.sources:
            return f"no stream reads {source}; give the same object that Stream.read got"
        if isinstance(source, GivenSource):
            return "an application's query decides the order of its rows; leave out bootstrap"
        if source.spout == "non_transactional":
            return f"{source} has no end to read up to; give a source that keeps its input"
    if not pipeline.waiting:
        return "it names all sources, so none would wait; leave out those that look up what the others fill"
    for source in pipeline.waiting:
        if not isinstance(source, WaitingSource):
            return f"{source} cannot wait; read it in a separate pipeline that looks up the states of this one"
    if pipeline.ticks is not None:
        # Because it has no tuples meanwhile, the watermark would advance without it and its tuples would come too late.
        return "a stream that waits would count as idle; leave out idle_after"
    return ""
