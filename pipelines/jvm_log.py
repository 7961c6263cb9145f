"""JVM log: what Spark's Java process writes to its standard output and error becomes lines of this process's log.

Otherwise its lines, in a format of their own, stand between those of the log, and no program can read it.
"""

import atexit
import logging
import os
import re
import threading

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

# As Spark's log4j writes a line: date, time, level, class, message.
SPARKS = re.compile(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d ([A-Z]+) ([^:]+): (.*)")
# As Java's virtual machine and its libraries warn.
WARNS = re.compile(r"(WARNING|Exception|Caused by)\b")

# Warnings of every start, about nothing that one could or should change.
HARMLESS = ("Using incubator modules: jdk.incubator.vector", "Unable to load native-hadoop library")

LEVELS = {"DEBUG": logging.DEBUG, "WARN": logging.WARNING, "ERROR": logging.ERROR, "FATAL": logging.CRITICAL}
DRAIN_SECONDS = 5.0  # to read what a process wrote that has ended

_exiting = threading.Event()
atexit.register(_exiting.set)


def start_java(conf: SparkConf) -> None:
    """Start Spark's Java process with its output in the log, unless there is one.

    Raises PySparkRuntimeError if it does not start; the log has what it wrote.
    """
    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    read, write = os.pipe()
    reader = threading.Thread(target=_log_lines, args=(read,), name="output of Java", daemon=True)
    reader.start()
    try:
        gateway = launch_gateway(conf, {"stdout": write, "stderr": write})  # type: ignore[no-untyped-call]
    except BaseException:
        os.close(write)
        reader.join(DRAIN_SECONDS)
        raise
    os.close(write)
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)


def _log_lines(read: int) -> None:
    """Log each line until Java has closed its side."""
    with os.fdopen(read, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            # A thread that writes while Python exits may find its stream closed, or block it.
            if not _exiting.is_set() and line.strip():
                level, name, message = parsed(line.rstrip())
                logging.getLogger(name).log(level, "%s", message)


def parsed(line: str) -> tuple[int, str, str]:
    """Return level, logger and message of a line that Java has written."""
    found = SPARKS.match(line)
    level, name, message = found.groups() if found else ("WARN" if WARNS.match(line) else "", "", line)
    harmless = any(each in message for each in HARMLESS)
    logger = f"spark.{name}" if name else "spark"
    return logging.INFO if harmless else LEVELS.get(level, logging.INFO), logger, message
