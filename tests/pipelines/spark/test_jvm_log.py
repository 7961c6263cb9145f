"""Lines that Java writes have level and logger in the log, and a stack trace is part of its error's line."""

import logging
import stat

import pytest
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError

from tidegauge.pipelines.spark.jvm_log import grouped, parsed, start_java


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "26/11/22 22:14:08 WARN NativeCodeLoader: Unable to load native-hadoop library",
            (logging.INFO, "spark.NativeCodeLoader", "Unable to load native-hadoop library"),
        ),
        ("26/11/22 22:14:08 ERROR Utils: a: b", (logging.ERROR, "spark.Utils", "a: b")),
        ("26/11/22 22:14:08 INFO Executor: ran", (logging.INFO, "spark.Executor", "ran")),
        ("26/11/22 22:14:08 WARN Utils: Service moved", (logging.WARNING, "spark.Utils", "Service moved")),
        ("WARNING: Unknown module", (logging.WARNING, "spark", "WARNING: Unknown module")),
        ('Setting default log level to "WARN".', (logging.INFO, "spark", 'Setting default log level to "WARN".')),
    ],
)
def test_a_line_of_java_has_its_level_and_its_class(line, expected):
    assert parsed(line) == expected


ERROR = "26/11/22 22:14:08 ERROR Executor: Exception in task 0.0"


def test_a_stack_trace_belongs_to_its_error():
    trace = ["java.lang.IllegalStateException: no", "\tat org.apache.spark.Some(Some.scala:1)", "Caused by: other"]
    info = "26/11/22 22:14:08 INFO Executor: ran"

    assert list(grouped([ERROR, *trace, info, "plain", "plain"])) == [[ERROR, *trace], [info], ["plain"], ["plain"]]


def test_what_comes_a_while_after_an_error_does_not_belong_to_it():
    assert list(grouped([ERROR, "\tat here", None, "Python says something"])) == [
        [ERROR, "\tat here"],
        ["Python says something"],
    ]


def test_what_a_java_that_does_not_start_has_written_is_in_the_log(monkeypatch, tmp_path, caplog):
    """A Java that fails, in place of the one that this process may have started."""
    program = tmp_path / "bin" / "spark-submit"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{ERROR}' >&2\necho 'java.lang.Error: broken' >&2\nprintf 'no end'\nexit 3\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setattr(SparkContext, "_gateway", None)
    caplog.set_level(logging.INFO)

    with pytest.raises(PySparkRuntimeError, match="JAVA_GATEWAY_EXITED"):
        start_java(SparkConf(loadDefaults=False))

    logged = [
        (each.name, each.levelname, each.getMessage()) for each in caplog.records if each.name.startswith("spark")
    ]
    assert logged == [("spark.Executor", "ERROR", "Exception in task 0.0")]
    assert caplog.records[-1].exception == "java.lang.Error: broken\nno end"
