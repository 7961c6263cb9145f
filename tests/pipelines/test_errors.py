"""Which line of a failure is shown first, and which failures are tried again."""

import psycopg
import pytest

from tidegauge.pipelines.errors import PipelineError, RuntimeSetupError, failure_reason, is_retryable
from tidegauge.state_backends.errors import BackendUnavailable, KeyShapeError, TidegaugeError

JAVA = "An error occurred while calling o43.collectToPython.\n: org.apache.spark.SparkException: {}\n\tat org.apache.."
WORKER = "{}\n  File x\ntidegauge.pipelines.errors.PipelineError: emitted column 'n': not int64\n\n\tat org.apache"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("the server is not available", "the server is not available"),
        (JAVA.format("[FAILED_READ_FILE] cannot read a.parquet"), "[FAILED_READ_FILE] cannot read a.parquet"),
        (JAVA.format("Job aborted"), "An error occurred while calling o43.collectToPython."),
        (
            WORKER.format("[PYTHON_EXCEPTION] a worker raised"),
            "tidegauge.pipelines.errors.PipelineError: emitted column 'n': not int64",
        ),
        ("", "RuntimeError"),
    ],
)
def test_the_most_specific_line_is_the_reason(text, reason):
    assert failure_reason(RuntimeError(text)) == reason


class RefusedByUser(PipelineError):
    """Defined outside `tidegauge.pipelines.errors`, as a job's own errors are."""

    class AndByAnother(TidegaugeError):
        pass


@pytest.mark.parametrize(
    ("line", "retryable"),
    [
        ("tidegauge.pipelines.errors.InputLostError: stream 's' was trimmed", False),
        ("tidegauge.pipelines.errors.RuntimeSetupError: no java", False),
        ("tidegauge.state_backends.errors.KeyShapeError: state 'a': the updater wrote key ('b',)", False),
        ("tidegauge.state_backends.errors.PipelineHeldError: a live driver holds it", False),
        ("tidegauge.state_backends.errors.BackendSetupError: REDIS_URL is not set", False),
        ("tidegauge.state_backends.errors.CapabilityError: no shadow tables", False),
        ("tidegauge.state_backends.errors.PositionError", False),
        (f"{__name__}.RefusedByUser: no", False),
        (f"{__name__}.RefusedByUser.AndByAnother: no", False),
        ("tidegauge.state_backends.errors.FencedError: another driver", True),
        ("tidegauge.state_backends.errors.BackendUnavailable: redis does not answer", True),
        ("psycopg.OperationalError: the server is not available", True),
        ("somewhere.errors.UnheardOfError: what is it", True),
        ("  tidegauge.state_backends.errors.KeyShapeError: quoted in a message, not raised", True),
    ],
)
def test_the_class_that_a_worker_raised_decides_whether_to_try_again(line, retryable):
    assert is_retryable(RuntimeError(f"PythonException:\n  Traceback ..\n{line}\n\tat java")) is retryable


def test_one_class_that_is_not_retryable_decides_over_those_that_are():
    errors = "tidegauge.state_backends.errors"
    text = f"{errors}.BackendUnavailable: x\n\n{errors}.LostBatchesError: y\n\tat java"

    assert not is_retryable(RuntimeError(text))


@pytest.mark.parametrize(
    ("error", "retryable"),
    [
        (PipelineError("wrong"), False),
        (RuntimeSetupError("no java"), False),
        (KeyShapeError("wrong"), False),
        (BackendUnavailable("redis does not answer"), True),
        (psycopg.OperationalError("the server is not available"), True),
        (ZeroDivisionError("division by zero"), True),
    ],
)
def test_an_error_of_the_driver_itself_says_whether_to_try_again(error, retryable):
    assert is_retryable(error) is retryable
