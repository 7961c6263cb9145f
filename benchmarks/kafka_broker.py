"""A Kafka broker for tests and benchmarks, and the connector's jars, which the Ivy of PySpark fetches from Maven.

Ivy caches the jars, so only the first run needs the network.
"""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from tidegauge.pipelines.embedded.data_dir import LOOPBACK, free_port, last_lines
from tidegauge.pipelines.embedded.java import java_home
from tidegauge.pipelines.sources.kafka.topics import CONNECTOR

FETCH_SECONDS, START_SECONDS, STOP_SECONDS = 400, 60, 30
LINGER_MS, BATCH_BYTES = 5, 65_536  # how long a message waits for others, and how many are sent together
# Jars that Spark has itself, with native libraries that must not be loaded twice.
SPARKS_OWN = ("slf4j-api", "lz4-java", "snappy-java", "jsr305")

# The newest connector that a mirror may have if it lags behind PySpark; it runs with the current Spark.
OLDER_CONNECTOR = [
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
]
LOG_SETTINGS = """
log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d %p %c: %m%n
"""
CLUSTER_ID = "dGlkZW1hcmstdGVzdHMtMQ"  # 16 bytes in base 64, as Kafka wants it


class MavenUnreachableError(Exception):
    """Jars are neither in Ivy's cache nor on a reachable server."""


def connector_jars(folder: Path) -> list[Path]:
    """Return the connector's jars, of PySpark's own version if Maven has them."""
    try:
        jars = fetch([CONNECTOR], folder)
    except MavenUnreachableError:
        jars = fetch(OLDER_CONNECTOR, folder, transitive=False)
    return [jar for jar in jars if not jar.name.startswith(SPARKS_OWN)]


def broker_jars(folder: Path, connector: Sequence[Path]) -> list[Path]:
    """Return the jars of a broker of the same version as the connector's client."""
    [version] = [jar.stem.removeprefix("kafka-clients-") for jar in connector if jar.name.startswith("kafka-clients-")]
    return fetch([f"org.apache.kafka:kafka_2.13:{version}", "org.slf4j:slf4j-reload4j:1.7.36"], folder)


def fetch(coordinates: Sequence[str], folder: Path, *, transitive: bool = True) -> list[Path]:
    """Return the jars of Maven coordinates. Raises MavenUnreachableError with the end of Ivy's output."""
    dependencies = "".join(
        '<dependency org="{}" name="{}" rev="{}" conf="default" transitive="{}"/>'.format(
            *each.split(":"), str(transitive).lower()
        )
        for each in coordinates
    )
    module, found = folder / "ivy.xml", folder / "jars.txt"
    module.write_text(
        '<ivy-module version="2.0"><info organisation="tidegauge" module="tests"/>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )
    found.unlink(missing_ok=True)
    ivy = [_java(), "-cp", str(Path(pyspark.__file__).parent / "jars" / "*"), "org.apache.ivy.Main", "-warn"]
    try:
        ran = subprocess.run(
            [*ivy, "-ivy", module, "-confs", "default", "-cachepath", found],
            capture_output=True,
            text=True,
            timeout=FETCH_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise MavenUnreachableError(f"Ivy did not end in {FETCH_SECONDS} s") from error
    if ran.returncode or not found.exists():
        raise MavenUnreachableError(f"{', '.join(coordinates)}: {(ran.stdout + ran.stderr).strip()[-500:]}")
    return [Path(jar) for jar in found.read_text().strip().split(os.pathsep)]


class Broker:
    """One node that is broker and controller, on the loopback address; a context manager."""

    def __init__(self, folder: Path, jars: Sequence[Path], **settings: Any) -> None:
        self._folder = folder
        self._more = {name.replace("_", "."): value for name, value in settings.items()}
        self._java = [
            _java(),
            "-Xmx256m",
            "-XX:TieredStopAtLevel=1",
            f"-Dlog4j.configuration=file:{folder / 'log4j.properties'}",
            "-cp",
            os.pathsep.join(map(str, jars)),
        ]
        self._process: subprocess.Popen[bytes] | None = None
        self.log = folder / "broker.log"
        self.address = f"{LOOPBACK}:{free_port()}"

    def __enter__(self) -> "Broker":
        (self._folder / "log4j.properties").write_text(LOG_SETTINGS)
        self._settings = self._folder / "server.properties"
        self._settings.write_text("".join(f"{name}={value}\n" for name, value in self._server_settings().items()))
        with self.log.open("ab") as log:
            format_storage = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", self._settings]
            subprocess.run([*self._java, *format_storage], stdout=log, stderr=log, check=True, timeout=START_SECONDS)
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()
        shutil.rmtree(self._folder / "data", ignore_errors=True)

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen([*self._java, "kafka.Kafka", self._settings], stdout=log, stderr=log)
        deadline = time.monotonic() + START_SECONDS
        while not self._listens():
            if time.monotonic() > deadline or self._process.poll() is not None:
                self.stop()
                raise RuntimeError(f"the Kafka broker does not start: {last_lines(self.log)}; see {self.log}")
            time.sleep(0.05)

    def stop(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def produce(self, topic: str, *lines: str) -> None:
        """Send messages by Kafka's own command."""
        sender = self.sender(topic)
        sender.communicate("".join(f"{line}\n" for line in lines).encode(), timeout=START_SECONDS)
        if sender.returncode:
            raise RuntimeError(f"Kafka's producer ended with {sender.returncode}; see {self.log}")

    def sender(self, topic: str) -> "subprocess.Popen[bytes]":
        """Start Kafka's own command, which sends each line that is written to it, until its input is closed."""
        command: list[str] = ["kafka.tools.ConsoleProducer", "--bootstrap-server", self.address, "--topic", topic]
        # Not the command's own limit of a second, because each message would wait that long for others.
        command += ["--timeout", str(LINGER_MS), "--batch-size", str(BATCH_BYTES)]
        with self.log.open("ab") as log:
            return subprocess.Popen([*self._java, *command], stdin=subprocess.PIPE, stdout=log, stderr=log)

    def _listens(self) -> bool:
        host, _, port = self.address.partition(":")
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) == 0

    def _server_settings(self) -> dict[str, Any]:
        controller = f"{LOOPBACK}:{free_port()}"
        return {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": self._folder / "data",
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
        } | self._more


class Topic:
    """A topic of the broker, created and written to by Kafka's client in Spark's JVM."""

    def __init__(self, spark: SparkSession, broker: Broker, name: str, partitions: int) -> None:
        self._spark, self._servers, self.name, self._partitions = spark, broker.address, name, partitions
        self.create()

    def create(self) -> None:
        jvm: Any = self._spark.sparkContext._jvm
        topics, optional = jvm.java.util.ArrayList(), jvm.java.util.Optional
        new = jvm.org.apache.kafka.clients.admin.NewTopic
        topics.add(new(self.name, optional.of(self._partitions), optional.empty()))
        with self._admin() as admin:
            admin.createTopics(topics).all().get()

    def recreate(self) -> None:
        """Delete the topic and create it again under its name."""
        jvm: Any = self._spark.sparkContext._jvm
        names = jvm.java.util.ArrayList()
        names.add(self.name)
        with self._admin() as admin:
            admin.deleteTopics(names).all().get()
            while self.name in list(admin.listTopics().names().get()):
                time.sleep(0.05)
        self.create()

    @contextmanager
    def _admin(self) -> Iterator[Any]:
        jvm: Any = self._spark.sparkContext._jvm
        settings = jvm.java.util.HashMap()
        settings.put("bootstrap.servers", self._servers)
        admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(settings)
        try:
            yield admin
        finally:
            admin.close()

    def send(
        self,
        *values: str | bytes | None,
        partition: int = 0,
        key: str | bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] | None = None,
    ) -> None:
        """Send messages to one partition, in this order."""
        binary = [(_binary(key), _binary(value), partition, self.name, headers) for value in values]
        columns = (
            "key binary, value binary, partition int, topic string, headers array<struct<key: string, value: binary>>"
        )
        frame = self._spark.createDataFrame(binary, columns)
        frame.coalesce(1).write.format("kafka").option("kafka.bootstrap.servers", self._servers).save()


def _binary(text: str | bytes | None) -> bytes | None:
    return text.encode() if isinstance(text, str) else text


def _java() -> str:
    return str(Path(java_home(), "bin", "java"))
