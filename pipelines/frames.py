"""The DataFrames of one micro-batch: every stream's, made once however many go on from it."""

from collections.abc import Mapping

from pyspark.sql import DataFrame

from pipelines.context import BatchContext
from pipelines.pipeline import Pipeline
from pipelines.stream import Node, Stream


class Frames:
    """Makes the frames of a pipeline's streams from those of its sources.

    A source or a costly step that several streams go on from is computed once and kept until `forget`.
    """

    def __init__(self, pipeline: Pipeline, context: BatchContext, sources: Mapping[Node, DataFrame]) -> None:
        self._pipeline = pipeline
        self._context = context
        self._frames: dict[Node, DataFrame] = dict(sources)
        self._kept: list[DataFrame] = []

    def of(self, node: Node) -> DataFrame:
        """Return the frame of a source, a stream, or a state's new values once they have been added."""
        if node not in self._frames:
            assert isinstance(node, Stream)
            frame = node.step(self._context, *map(self.of, node.inputs))
            self._frames[node] = self.keep(frame) if node.costly and self._pipeline.readers(node) > 1 else frame
        return self._frames[node]

    def add(self, node: Node, frame: DataFrame) -> None:
        """Say what came of a fed state: its new values."""
        self._frames[node] = frame

    def keep(self, frame: DataFrame) -> DataFrame:
        """Have a frame computed once, at its first use."""
        self._kept.append(frame.persist())
        return frame

    def forget(self) -> None:
        for frame in self._kept:
            frame.unpersist()
