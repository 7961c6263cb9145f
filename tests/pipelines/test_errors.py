"""The line of a failure that a person wants to read first, and which failures no second try can mend."""

import pytest

from pipelines.errors import failure_reason, is_refusal

JAVA = "An error occurred while calling o43.collectToPython.\n: org.apache.spark.SparkException: {}\n\tat org.apache.."
WORKER = "{}\n  File x\npipelines.errors.PipelineError: emitted column 'n': not int64\n\n\tat org.apache"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("the server is away", "the server is away"),
        (JAVA.format("[FAILED_READ_FILE] cannot read a.parquet"), "[FAILED_READ_FILE] cannot read a.parquet"),
        (JAVA.format("Job aborted"), "An error occurred while calling o43.collectToPython."),
        (
            WORKER.format("[PYTHON_EXCEPTION] a worker raised"),
            "pipelines.errors.PipelineError: emitted column 'n': not int64",
        ),
        ("", "RuntimeError"),
    ],
)
def test_the_telling_line_comes_first(text, reason):
    assert failure_reason(RuntimeError(text)) == reason


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        ("pipelines.errors.InputLostError: stream 's' was trimmed", True),
        ("state_backends.errors.KeyShapeError: state 'a': the updater wrote key ('b',)", True),
        ("state_backends.errors.FencedError: another driver", False),
        ("psycopg.OperationalError: the server is away", False),
    ],
)
def test_a_refusal_in_a_worker_is_told_from_what_may_pass(line, refused):
    assert is_refusal(RuntimeError(f"PythonException:\n  Traceback ..\n{line}\n\tat java")) is refused
