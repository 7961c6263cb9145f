"""Frames: the DataFrame of each stream of a pipeline in one batch; each is made once."""

from collections.abc import Mapping

from pyspark.sql import DataFrame

from tidegauge.pipelines.declare.context import BatchContext
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Node, Stream


class Frames:
    """Makes the frames of a pipeline's streams from those of its sources.

    A source or a costly step that several streams read is computed once and cached until `forget`.
    """

    def __init__(self, pipeline: Pipeline, context: BatchContext, sources: Mapping[Node, DataFrame]) -> None:
        self._pipeline = pipeline
        self._context = context
        self._frames: dict[Node, DataFrame] = dict(sources)
        self._kept: list[DataFrame] = []

    def reach(self, context: BatchContext) -> None:
        """Give the remaining steps a context that has the batch's watermark."""
        self._context = context

    def of(self, node: Node) -> DataFrame:
        """Return the frame of a source, a stream, or a state's new values once they have been added."""
        if node not in self._frames:
            assert isinstance(node, Stream)
            frame = node.step(self._context, *map(self.of, node.inputs))
            self._frames[node] = self.keep(frame) if node.costly and self._pipeline.readers(node) > 1 else frame
        return self._frames[node]

    def rerun(self, node: Node, rows: DataFrame) -> DataFrame:
        """Apply a stream's steps to other rows of its source. It and all streams before it must have one input."""
        return node.step(self._context, self.rerun(node.inputs[0], rows)) if isinstance(node, Stream) else rows

    def add(self, node: Node, frame: DataFrame) -> None:
        """Set the new values of a state once it has been fed, or the frame of a stream that is made elsewhere."""
        self._frames[node] = frame

    def keep(self, frame: DataFrame) -> DataFrame:
        """Cache a frame at its first use."""
        # Not with `persist()`, whose default is the same, because it sends the storage level to Java each time.
        self._kept.append(frame.cache())
        return frame

    def forget(self) -> None:
        for frame in self._kept:
            frame.unpersist()
