"""The product's commands, `manage.py`, with the pipeline of the soak, its points, and what a control run turns off.

Without SOAK_SPARK a driver runs on the engine of micro_batches.py; with it, on Spark. SOAK_PIPELINE names the pipeline,
SOAK_VARIANT its kind.
"""

import os
import sys
from types import ModuleType
from typing import Any

import manage
from tests.soak import micro_batches, switches
from tests.soak.points import Points
from tests.soak.transfers import VARIANTS, Release, transfers
from tidegauge.pipelines.batch.runner import BatchRunner
from tidegauge.pipelines.driver import driver
from tidegauge.pipelines.driver.discovery import VARIABLE
from tidegauge.state_backends.backends.external import ExternalBackend
from tidegauge.state_backends.ledger.batch_ledger import BatchLedger

# The product waits up to a minute, and up to eight failures; a soak has no such time, and injects more failures.
LONGEST_PAUSE_SECONDS = 2.0
MAX_FAILURES = 30
# Of a stuck Redis: the product waits a minute.
STORE_SECONDS = 5.0


def register() -> None:
    name, variant = os.environ["SOAK_PIPELINE"], VARIANTS[os.environ["SOAK_VARIANT"]]
    module = ModuleType("soak_pipeline")
    setattr(module, name, transfers(name, variant, Release.of_environment()))
    sys.modules[module.__name__] = module
    os.environ[VARIABLE] = module.__name__


def put_points() -> None:
    """Pass a point before and behind each step of a batch."""
    points = Points.of_environment()
    _surround(BatchLedger, "begin", lambda: None, lambda: points.passes("begun"))
    _surround(BatchRunner, "_revert", lambda: points.passes("reverting"), lambda: points.passes("reverted"))
    _surround(BatchLedger, "commit", lambda: points.passes("committing"), lambda: points.passes("committed"))


def use_micro_batches() -> None:
    """Run batches without Spark."""
    import tidegauge.pipelines.spark.session

    session = micro_batches.Session()
    tidegauge.pipelines.spark.session.start_session = lambda *_, **__: session
    driver.check = lambda *_: None
    BatchRunner._apply = micro_batches.apply_without_spark  # type: ignore[method-assign,assignment]


def _surround(owner: type, name: str, before: Any, behind: Any) -> None:
    function = getattr(owner, name)

    def surrounded(*args: Any, **options: Any) -> Any:
        before()
        result = function(*args, **options)
        behind()
        return result

    setattr(owner, name, surrounded)


def main() -> None:
    """Run the command that sys.argv names."""
    sys.argv[0] = "manage.py"
    register()
    put_points()
    switches.turn_off_ordered()
    driver.LONGEST_PAUSE_SECONDS = LONGEST_PAUSE_SECONDS
    ExternalBackend.timeout_seconds = STORE_SECONDS
    if not os.environ.get("SOAK_SPARK"):
        use_micro_batches()
    manage.main()
