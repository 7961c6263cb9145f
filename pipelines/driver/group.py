"""Driver group: several pipelines in one process and one Spark, each with a driver in a thread of its own.

Each has its own query, ledger, checkpoint and attempts. If one fails for good, the others keep running, because they
share no state and a restart of the process would stop them too. If a supervisor should restart the process at once,
`fail_fast` stops the others at the end of their batches. Either way the caller learns which have failed, and why.
"""

import logging
import threading
from collections.abc import Sequence

from tidegauge.pipelines.driver.driver import Driver
from tidegauge.pipelines.errors import failure_reason

# Set, because Spark would otherwise finish the jobs of one pipeline's batch before it runs those of another.
FAIR_CONF = {"spark.scheduler.mode": "FAIR"}

logger = logging.getLogger(__name__)


class DriverGroup:
    """Runs drivers side by side until each has ended by itself.

    drivers: of different pipelines, each with a Spark session of its own; all share the event `stopping`.
    fail_fast: stop all when one has failed for good.
    """

    def __init__(self, drivers: Sequence[Driver], stopping: threading.Event, *, fail_fast: bool = False) -> None:
        self._drivers = drivers
        self._stopping = stopping
        self._fail_fast = fail_fast
        self._failures: dict[str, Exception] = {}

    def run(self) -> dict[str, Exception]:
        """Return the errors of the pipelines that failed, by name, once all have ended."""
        threads = [
            threading.Thread(target=self._run, args=(driver,), name=driver.pipeline.name) for driver in self._drivers
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return self._failures

    def _run(self, driver: Driver) -> None:
        name = driver.pipeline.name
        try:
            # Set here, because Spark assigns a pool per thread: each query's jobs get their own.
            driver.spark.sparkContext.setLocalProperty("spark.scheduler.pool", name)
            driver.run()
        except Exception as error:
            self._failures[name] = error
            left = "the others are stopped" if self._fail_fast else "the others go on"
            logger.error("pipeline %s has ended, %s: %s", name, left, failure_reason(error), extra={"pipeline": name})
            if self._fail_fast:
                self._stopping.set()
