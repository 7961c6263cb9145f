"""Lines that Java writes have level and logger in the log."""

import logging

import pytest

from pipelines.jvm_log import parsed


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
