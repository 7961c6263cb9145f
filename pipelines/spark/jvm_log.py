"""JVM log: what Spark's Java process writes to its standard output and error becomes lines of this process's log.

Otherwise its lines, in a format of their own, stand between those of the log, and no program can read it. A warning or
an error and the stack trace below it are one line.
"""

import atexit
import logging
import os
import re
import select
import threading
from collections.abc import Iterable, Iterator

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

# As Spark's log4j writes a line: date, time, level, class, message.
SPARKS = re.compile(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d ([A-Z]+) ([^:]+): (.*)")
# As Java's virtual machine and its libraries warn.
WARNS = re.compile(r"(WARNING|Exception|Caused by)\b")

# Warnings of every start, about nothing that one could or should change.
HARMLESS = ("Using incubator modules: jdk.incubator.vector", "Unable to load native-hadoop library")

LEVELS = {"DEBUG": logging.DEBUG, "WARN": logging.WARNING, "ERROR": logging.ERROR, "FATAL": logging.CRITICAL}
TRACED = ("WARN", "ERROR", "FATAL")  # levels whose lines may have a stack trace below

TRACE_SECONDS = 0.2  # without a further line, after which a stack trace has ended
DRAIN_SECONDS = 5.0  # to read what a process wrote that has ended
CHUNK_BYTES = 65_536

_exiting = threading.Event()
atexit.register(_exiting.set)


def start_java(conf: SparkConf) -> None:
    """Start Spark's Java process with its output in the log, unless there is one.

    Raises PySparkRuntimeError if it does not start; the log has what it wrote.
    """
    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    read, write = os.pipe()
    reader = threading.Thread(target=_log_all, args=(read,), name="output of Java", daemon=True)
    reader.start()
    try:
        gateway = launch_gateway(conf, {"stdout": write, "stderr": write})  # type: ignore[no-untyped-call]
    except BaseException:
        os.close(write)
        reader.join(DRAIN_SECONDS)
        raise
    os.close(write)
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)


def _log_all(read: int) -> None:
    """Log what Java writes until it has closed its side."""
    for first, *trace in grouped(_lines(read)):
        level, name, message = parsed(first)
        # A thread that writes while Python exits may find its stream closed, or block it.
        if not _exiting.is_set():
            extra = {"exception": "\n".join(trace)} if trace else None
            logging.getLogger(name).log(level, "%s", message, extra=extra)
    os.close(read)


def _lines(read: int) -> Iterator[str | None]:
    """Yield each line that is not empty, and None where no further one comes for a while."""
    rest = b""
    while True:
        if not select.select([read], [], [], TRACE_SECONDS)[0]:
            yield None
            select.select([read], [], [])
        chunk = os.read(read, CHUNK_BYTES)
        *lines, rest = (rest + chunk).split(b"\n")
        # What a process that has ended wrote last need not end in a line break.
        whole = lines if chunk else [*lines, rest]
        yield from (text for line in whole if (text := line.decode(errors="replace").rstrip()))
        if not chunk:
            return


def grouped(lines: Iterable[str | None]) -> Iterator[list[str]]:
    """Yield lines, each with the stack trace below it; None ends one."""
    group: list[str] = []
    for line in lines:
        if line is not None and group and _is_traced(group[0]) and not SPARKS.match(line):
            group.append(line)
            continue
        if group:
            yield group
        group = [] if line is None else [line]
    if group:
        yield group


def _is_traced(line: str) -> bool:
    found = SPARKS.match(line)
    return found is not None and found.group(1) in TRACED


def parsed(line: str) -> tuple[int, str, str]:
    """Return level, logger and message of a line that Java has written."""
    found = SPARKS.match(line)
    level, name, message = found.groups() if found else ("WARN" if WARNS.match(line) else "", "", line)
    harmless = any(each in message for each in HARMLESS)
    logger = f"spark.{name}" if name else "spark"
    return logging.INFO if harmless else LEVELS.get(level, logging.INFO), logger, message
