"""JVM log: writes the standard output and error of Spark's Java process to this process's log.

Otherwise lines in another format would be mixed into the log, and no program could parse it. A warning or error and the
stack trace below it become one log line.
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

# A line of Spark's log4j: date, time, level, class, message.
SPARKS = re.compile(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d ([A-Z]+) ([^:]+): (.*)")
# A warning of the Java virtual machine or its libraries.
WARNS = re.compile(r"(WARNING|Exception|Caused by)\b")

# Warnings at every start that need no action. They are logged at level info.
HARMLESS = ("Using incubator modules: jdk.incubator.vector", "Unable to load native-hadoop library")

LEVELS = {"DEBUG": logging.DEBUG, "WARN": logging.WARNING, "ERROR": logging.ERROR, "FATAL": logging.CRITICAL}
TRACED = ("WARN", "ERROR", "FATAL")  # levels whose lines may have a stack trace below

TRACE_SECONDS = 0.2  # a stack trace has ended if no further line comes within this time
DRAIN_SECONDS = 5.0  # how long to read the remaining output of a process that has ended
CHUNK_BYTES = 65_536

_exiting = threading.Event()
atexit.register(_exiting.set)


def start_java(conf: SparkConf) -> None:
    """Start Spark's Java process with its output in the log, unless one is running.

    It is in a session of its own, because SIGTERM to our process group would end it at once, in the middle of a batch.
    It ends by itself when its standard input is closed, so also if this process is killed.

    Raises PySparkRuntimeError if it does not start; the log then has its output.
    """
    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    read, write = os.pipe()
    reader = threading.Thread(target=_log_all, args=(read,), name="output of Java", daemon=True)
    reader.start()
    options = {"stdout": write, "stderr": write, "start_new_session": True}
    try:
        gateway = launch_gateway(conf, options)  # type: ignore[no-untyped-call]
    except BaseException:
        os.close(write)
        reader.join(DRAIN_SECONDS)
        raise
    os.close(write)
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)


def _log_all(read: int) -> None:
    """Log the output of the Java process until it closes its end of the pipe."""
    for first, *trace in grouped(_lines(read)):
        level, name, message = parsed(first)
        # Nothing is logged during exit, because a thread that writes then may find its stream closed, or block it.
        if not _exiting.is_set():
            extra = {"exception": "\n".join(trace)} if trace else None
            logging.getLogger(name).log(level, "%s", message, extra=extra)
    os.close(read)


def _lines(read: int) -> Iterator[str | None]:
    """Yield each line that is not empty, and None when no further line comes for TRACE_SECONDS."""
    rest = b""
    while True:
        if not select.select([read], [], [], TRACE_SECONDS)[0]:
            yield None
            select.select([read], [], [])
        chunk = os.read(read, CHUNK_BYTES)
        *lines, rest = (rest + chunk).split(b"\n")
        # The last line of a process that has ended may lack a line break.
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
    """Return level, logger and message of a line of Java's output."""
    found = SPARKS.match(line)
    level, name, message = found.groups() if found else ("WARN" if WARNS.match(line) else "", "", line)
    harmless = any(each in message for each in HARMLESS)
    logger = f"spark.{name}" if name else "spark"
    return logging.INFO if harmless else LEVELS.get(level, logging.INFO), logger, message
