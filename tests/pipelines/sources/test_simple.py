"""Sources for experiments: they bring events, without replay."""

import socket
import threading

import pytest

from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.driver.driver import Driver, RunOptions
from tidegauge.pipelines.errors import PipelineError
from tidegauge.pipelines.sources.simple import Rate, Socket
from tidegauge.state_backends import Count, Max, StateSpec

pytestmark = pytest.mark.spark

TOTAL = StateSpec(
    "total", measures={"count": Count(), "largest": Max("value", type="bigint")}, kind="non_transactional"
)
LINES = StateSpec("lines", key={"line": "text"}, measures={"count": Count()})


def run_until(workspace, database_url, pipeline, enough):
    """Drive a pipeline until `enough()` after one of its batches; it stops after a hundred of them in any case."""

    def look(batch):
        if enough() or batch.txid >= 100:
            driver.stop()

    driver = Driver(pipeline, workspace.spark, database_url, RunOptions(workspace.checkpoint), look)
    driver.run()


@pytest.mark.core
def test_a_rate_counts_up_from_zero(workspace, database_url):
    pipeline = Pipeline("rate", [Stream.read(Rate(50)).persistent_aggregate(TOTAL)])

    run_until(workspace, database_url, pipeline, lambda: workspace.values("total").get((), {}).get("count", 0) >= 50)

    [counted] = workspace.values("total").values()
    assert counted["largest"] == counted["count"] - 1
    assert pipeline.guarantees == {"total": "approximate"}


@pytest.mark.core
def test_lines_of_a_socket_count_except_blank_ones(workspace, database_url):
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, args=[server, b"dog\ncat\n\n  \ndog\ncow\xff\n"], daemon=True).start()
        stream = Stream.read(Socket("127.0.0.1", server.getsockname()[1]))
        pipeline = Pipeline("socket", [stream.group_by("line").persistent_aggregate(LINES)])

        run_until(workspace, database_url, pipeline, lambda: len(workspace.values("lines")) == 3)

    counts = {line: value["count"] for line, value in workspace.values("lines").items()}
    assert counts == {"dog": 2, "cat": 1, "cow\N{REPLACEMENT CHARACTER}": 1}
    assert pipeline.guarantees == {"lines": "approximate"}


def serve(server, lines):
    """Send lines to the client that connects, and keep the connection until the client closes it."""
    connection, _ = server.accept()
    with connection:
        connection.sendall(lines)
        connection.recv(1)


@pytest.mark.parametrize("rows", [0, -1])
def test_a_rate_of_nothing_is_refused(rows):
    with pytest.raises(PipelineError, match="is not a rate; give 1 or more"):
        Rate(rows)


@pytest.mark.parametrize(("host", "port"), [("", 9999), ("localhost", 0), ("localhost", 65536)])
def test_a_socket_without_an_address_is_refused(host, port):
    with pytest.raises(PipelineError, match="is not an address; give a host and a port"):
        Socket(host, port)
