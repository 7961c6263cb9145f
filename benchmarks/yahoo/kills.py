"""yahoo-kills: The Yahoo Streaming Benchmark's own check, after the driver was killed again and again.

The same jobs as in `yahoo` count events that arrive at a fixed rate, slightly out of order. Every 30 seconds `kill -9`
ends the driver and its Java process, and it is started again; a round is the time until a kill. Once all events are
counted, each window is compared with the events that were sent: how many windows there are, how many are wrong, how
many events were counted twice in them, and how many were lost.

The jobs keep their counts where those of `yahoo` do. Kafka, PostgreSQL, Redis and Trident's ZooKeeper live on.

The topic has each event once. Where Trident counts most of them twice, it has begun again at the start of the topic
after a kill, as if it had no offsets.
"""

from collections.abc import Iterator

from benchmarks.cases import Case
from benchmarks.peers.environments import trident_classpath
from benchmarks.yahoo.benchmark import VERSIONS as VERSIONS
from benchmarks.yahoo.engines import ENGINES
from benchmarks.yahoo.events import Events
from benchmarks.yahoo.load import sending
from benchmarks.yahoo.runs import DRAIN_SECONDS, TOPIC, Check, running, warm_up

SEEDS = "ids and choices of the events: 0"

# Half of what `yahoo` begins with, because a driver that has just been started has to catch up.
RATE = 5_000
# Twenty, because a kill harms the job by hand only between its first write and Spark's commit of the batch.
KILL_SECONDS, KILLS = 30.0, 20


def run(rate: int = RATE, rounds: int = KILLS) -> Iterator[Case]:
    """Yield the cases. rounds: kills of each engine."""
    trident_classpath()  # raises MissingPeerError before anything is started
    for engine in ENGINES:
        check = after_kills(engine, Events(seed=0, skew=True), rate, rounds, KILL_SECONDS)
        for name in ("windows", "wrong", "counted_twice", "lost"):
            unit = "windows" if name in ("windows", "wrong") else "events"
            yield Case(f"{engine}_{name}", getattr(check, name), unit)


def after_kills(engine: str, events: Events, rate: int, kills: int, pause: float) -> Check:
    """Kill an engine with `kill -9` every so many seconds while events arrive, and check it once all are counted.

    If it never counts all of them, the windows are checked after DRAIN_SECONDS.
    """
    with running(engine, events) as run:
        with sending(run.broker, TOPIC, events) as load:
            warm_up(run, load, rate)
            for _ in range(kills):
                load.at_rate(rate, pause)
                run.engine.kill()
            load.at_rate(rate, pause)
        run.until_counted(DRAIN_SECONDS)
        return run.check()
