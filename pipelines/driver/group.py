"""Driver group: several pipelines in one process and one Spark, each with a driver in a thread of its own.

Each has its own query, ledger, checkpoint and attempts. One that fails for good leaves the others running: they share
no state, and a restart of the process would stop them, too. Where a supervisor should restart it at once,
`fail_fast` stops the others at the end of their batches. Either way the caller learns which have failed, and why.
"""

import logging
import threading
from collections.abc import Sequence

from tidegauge.pipelines.driver.driver import Driver
from tidegauge.pipelines.errors import failure_reason

# Without it Spark runs the jobs of one batch to their end before those of another pipeline's.
FAIR_CONF = {"spark.scheduler.mode": "FAIR"}

logger = logging.getLogger(__name__)


class DriverGroup:
    """Runs drivers side by side until each has ended by itself.

    drivers: of different pipelines, each with a Spark session of its own, and the event `stopping` in common.
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
            # Each query's jobs are in a pool of their own, as Spark gives every thread's jobs one.
            driver.spark.sparkContext.setLocalProperty("spark.scheduler.pool", name)
            driver.run()
        except Exception as error:
            self._failures[name] = error
            left = "the others are stopped" if self._fail_fast else "the others go on"
            logger.error("pipeline %s has ended, %s: %s", name, left, failure_reason(error), extra={"pipeline": name})
            if self._fail_fast:
                self._stopping.set()
