"""Pipeline: one Spark streaming query and all the states it feeds, whose batches commit together.

The streams of its states form a graph, which this module checks and puts in the order in which a batch runs it.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tidegauge.pipelines.declare.bootstrap import check_bootstrap
from tidegauge.pipelines.declare.functions import StateFactory
from tidegauge.pipelines.declare.retraction import check_retraction
from tidegauge.pipelines.declare.rule_rows import check_place
from tidegauge.pipelines.declare.stream import FedState, Node, PartitionPersist, PersistentAggregate, Stream, Watermark
from tidegauge.pipelines.errors import PipelineError
from tidegauge.pipelines.sources.guarantee import APPROXIMATE, AT_LEAST_ONCE, EXACTLY_ONCE, Spout, guarantee
from tidegauge.pipelines.sources.source import Source, called
from tidegauge.pipelines.sources.sources import Sources
from tidegauge.pipelines.sources.ticks import Ticks
from tidegauge.state_backends.schema.inputs import Inputs
from tidegauge.state_backends.spec.state_spec import NAME, NAME_RULE, Guarantee, StateSpec, weakest


@dataclass(frozen=True)
class Pipeline:
    """One Spark streaming query and all the states it feeds.

    name: its name in the ledger and of the checkpoint; keep it as long as the states exist.
    feeds: the states it feeds; a state that another one reads new values from need not be listed.
    description: what the dashboard shows about it.
    bootstrap: sources that are read first. Whenever the pipeline starts, resumes or tries again, the others wait until
    these have been read up to the end that their input has at that moment, so that lookups find what they fill.
    Raises PipelineError for an invalid name, for no state, for a state fed twice, for a watermark on a state's new
    values, for rows that are taken away from a state whose measures cannot subtract, and for bootstrap sources that
    have no end or that others cannot wait for.
    """

    name: str
    feeds: Sequence[FedState]
    description: str = field(default="")
    bootstrap: Sequence[Source] = ()

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise PipelineError(f"pipeline {self.name!r}: invalid name; {NAME_RULE}")
        names = [fed.name for fed in self.ordered]
        if not names:
            raise PipelineError(f"pipeline {self.name!r}: feeds no state; give it a persistent_aggregate")
        if len(set(names)) < len(names):
            raise PipelineError(f"pipeline {self.name!r}: feeds a state twice: {', '.join(names)}")
        for fed in self.ordered:
            check_retraction(fed)
        for stream in self.rules:
            check_place(self, stream)
        for stream in self.watermarked:
            if any(isinstance(node, PersistentAggregate | PartitionPersist) for node in upstream(stream)):
                raise PipelineError(
                    f"pipeline {self.name!r}: has a watermark on new values; put with_watermark before the state"
                )
        for fed in self.closing:
            if not self.watermarked:
                raise PipelineError(
                    f"pipeline {self.name!r}: the windows of state {fed.name!r} never close, because no stream has "
                    "a watermark; give its events one with with_watermark"
                )
        check_bootstrap(self)

    @property
    def closing(self) -> list[PersistentAggregate]:
        """The states whose windows close."""
        return [fed for fed in self.ordered if isinstance(fed, PersistentAggregate) and fed.closing is not None]

    @cached_property
    def ordered(self) -> list[FedState]:
        """Every state the pipeline feeds, each after the states whose new values it reads."""
        return [node for node in self._nodes if isinstance(node, PersistentAggregate | PartitionPersist)]

    @cached_property
    def levels(self) -> list[list[FedState]]:
        """The same states in groups; those of one group can be fed at the same time."""
        depth: dict[FedState, int] = {}
        for fed in self.ordered:
            before = [depth[node] for node in upstream(fed.stream) if node in depth]
            depth[fed] = max(before, default=-1) + 1
        return [[fed for fed in self.ordered if depth[fed] == level] for level in sorted(set(depth.values()))]

    @cached_property
    def watermarked(self) -> list[Stream]:
        return [node for node in self._nodes if isinstance(node, Stream) and node.watermark is not None]

    @cached_property
    def sources(self) -> list[Source]:
        return self._events if self.ticks is None else [*self._events, self.ticks]

    @property
    def waiting(self) -> list[Source]:
        """The sources that wait until the bootstrap sources have been read; none if there are no bootstrap sources."""
        return [source for source in self._events if source not in self.bootstrap] if self.bootstrap else []

    @property
    def _events(self) -> list[Source]:
        return [node for node in self._nodes if not isinstance(node, Stream | PersistentAggregate | PartitionPersist)]

    @property
    def watermarks(self) -> list[Watermark]:
        return [stream.watermark for stream in self.watermarked if stream.watermark is not None]

    @cached_property
    def ticks(self) -> Ticks | None:
        """The source that triggers batches without input, if a watermark advances on idle input; it comes last.

        None if an application gives the batches, because no source can be added to its query.
        """
        is_given = any(getattr(source, "is_given", False) for source in self._events)
        return Ticks() if not is_given and any(watermark.idle_after for watermark in self.watermarks) else None

    @cached_property
    def cutoffs(self) -> list[Stream]:
        """The streams that leave out what comes too late."""
        return [node for node in self._nodes if isinstance(node, Stream) and node.cutoff is not None]

    @cached_property
    def rules(self) -> list[Stream]:
        """The streams that reject rows by a rule, in the order in which rows reach them."""
        return [node for node in self._nodes if isinstance(node, Stream) and node.rule is not None]

    @property
    def leaving_out(self) -> list[Stream]:
        """The streams that leave out late tuples, including those that only count them."""
        dropping = [stream for stream in self.watermarked if stream.watermark and stream.watermark.drop_late]
        return [*self.cutoffs, *dropping]

    def has_late_reader(self, stream: Stream) -> bool:
        """Return whether the pipeline itself reads what a stream leaves out as too late."""
        return any(isinstance(node, Stream) and node.late_of is stream for node in self._nodes)

    @property
    def timers(self) -> list[PartitionPersist]:
        """The states whose keys have timers."""
        return [fed for fed in self.ordered if isinstance(fed, PartitionPersist) and fed.spec and fed.due]

    @cached_property
    def source(self) -> Sources:
        """Its sources combined into one, which the query reads."""
        return Sources(self.sources)

    @property
    def packages(self) -> tuple[str, ...]:
        """Maven coordinates of the jars that its sources need."""
        return self.source.packages

    @property
    def specs(self) -> list[StateSpec]:
        return [fed.spec for fed in self.ordered if fed.spec is not None]

    @property
    def stores(self) -> list[StateFactory]:
        """The user's own stores that it writes."""
        return [fed.state for fed in self.ordered if isinstance(fed, PartitionPersist) and fed.spec is None]  # type: ignore[misc]

    @property
    def queried(self) -> set[str]:
        """The names of the states that its streams look up."""
        return {node.queries for node in self._nodes if isinstance(node, Stream) and node.queries is not None}

    @property
    def inputs(self) -> dict[str, Inputs]:
        """What each state is computed from, by state name."""
        return {fed.spec.name: _declared_inputs(fed) for fed in self.ordered if fed.spec is not None}

    @cached_property
    def guarantees(self) -> dict[str, Guarantee]:
        """The guarantee of each state, by state name: the weakest of its own and of what its tuples come from."""
        found: dict[str, Guarantee] = {fed.name: EXACTLY_ONCE for fed in self.ordered}
        # One round per state, because a state may look up one that is fed after it and so is weakened a round later.
        for _ in self.ordered:
            found = {fed.name: self._guarantee(fed, found) for fed in self.ordered}
        return {spec.name: found[spec.name] for spec in self.specs}

    def _guarantee(self, fed: FedState, of_states: Mapping[str, Guarantee]) -> Guarantee:
        # At least once, because it is not known what a store of the user's own does with a batch that is replayed.
        own = guarantee(self._spout(fed), fed.spec.kind) if fed.spec else AT_LEAST_ONCE
        before = list(upstream(fed.stream))
        read = [node for node in before if isinstance(node, PersistentAggregate | PartitionPersist)]
        asked = [node.queries for node in before if isinstance(node, Stream) and node.queries is not None]
        names = [*(node.name for node in read), *asked]
        given = [APPROXIMATE for node in read if _emits_otherwise(node)]
        return weakest([own, *(of_states[name] for name in names if name in of_states), *given])

    def _spout(self, fed: FedState) -> Spout:
        """Return what is promised about the tuples of a batch that is replayed.

        A lookup in another pipeline's state, or in a store, may give another result by then.
        """
        spout = self.source.spout
        own = {state.name for state in self.ordered}
        asks = any(isinstance(node, Stream) and _asks_others(node, own) for node in upstream(fed.stream))
        return "opaque" if asks and spout == "transactional" else spout

    def readers(self, node: Node) -> int:
        """Return how many streams and states read a node directly."""
        return sum(node in _inputs(other) for other in self._nodes)

    def readers_below(self, source: Source) -> int:
        """Return how many states and watermarks read a source, through any streams."""
        ends: list[Stream] = [*(fed.stream for fed in self.ordered), *self.watermarked]
        return sum(source in upstream(end) for end in ends)

    def sources_of(self, fed: FedState) -> list[Source]:
        """Return the sources that a state is fed from, also through other states."""
        below = set(upstream(fed))
        return [source for source in self._events if source in below]

    @cached_property
    def _nodes(self) -> list[Node]:
        found: dict[Node, None] = {}
        for fed in self.feeds:
            for node in (*upstream(fed.stream), fed):
                found.setdefault(node)
        return list(found)


def _inputs(node: Node) -> tuple[Node, ...]:
    if isinstance(node, Stream):
        return node.inputs
    return (node.stream,) if isinstance(node, PersistentAggregate | PartitionPersist) else ()


def _asks_others(stream: Stream, own: Collection[str]) -> bool:
    """Return whether a stream's tuples are looked up in a state that this pipeline does not feed."""
    reads_state = any(isinstance(each, PersistentAggregate | PartitionPersist) for each in stream.inputs)
    return stream.scope == "state" and not reads_state and stream.queries not in own


def _emits_otherwise(fed: FedState) -> bool:
    """Return whether an updater finds its own writes when its batch is replayed, and so emits something else."""
    return isinstance(fed, PartitionPersist) and fed.spec is not None and fed.spec.kind == "transactional"


def _declared_inputs(fed: FedState) -> Inputs:
    """Return the sources and states that a state reads through streams only, and the states that these look up."""
    sources: dict[str, None] = {}
    states: dict[str, None] = {}
    lookups: dict[str, None] = {}
    seen: set[Node] = set()
    waiting: list[Node] = [fed.stream]
    while waiting:
        node = waiting.pop(0)
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, Stream):
            waiting += node.inputs
            lookups |= {node.queries: None} if node.queries else {}
        elif isinstance(node, PersistentAggregate | PartitionPersist):
            states[node.name] = None
        else:
            sources[called(node)] = None
    return {"sources": list(sources), "states": list(states), "lookups": list(lookups)}


def upstream(node: Node) -> Iterator[Node]:
    """Yield everything that a node is computed from, and the node itself, inputs first."""
    for each in _inputs(node):
        yield from upstream(each)
    yield node
