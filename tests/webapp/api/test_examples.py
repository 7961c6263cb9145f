"""The commands of docs/api.md run as written."""

import json
import re
import shutil
import subprocess

import pyarrow as pa
import pytest

from tidegauge.pipelines.embedded.data_dir import REPOSITORY
from tidegauge.webapp.accounts.services import create_api_key

BLOCKS = re.findall(r"```sh\n(.*?)```", (REPOSITORY / "docs" / "api.md").read_text(), re.DOTALL)

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here")


@pytest.fixture
def run(lasting, live_server, tmp_path):
    _, key = create_api_key("reader of the page", ["read"])

    def run(block: str) -> str:
        # A curl that gets a problem fails.
        script = "curl() { command curl -H 'Connection: close' \"$@\"; }\n" + block
        done = subprocess.run(
            ["/bin/bash", "-e", "-c", script], env={"URL": live_server.url, "KEY": key, "PATH": "/usr/bin:/bin"},
            cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_every_kind_of_read_has_an_example():
    page = "".join(BLOCKS)

    assert len(BLOCKS) >= 7
    ways = (
        "combine",
        "/api/v1/lookup",
        "entries?order_by",
        "export?format=csv",
        "export?format=arrow",
        "/history",
        "If-None-Match",
    )
    assert [way for way in ways if way not in page] == []


@pytest.mark.parametrize("block", BLOCKS)
def test_an_example_runs(run, block, tmp_path):
    printed = run(block)

    if "TAG=" in block:
        assert printed == "304\n"
    elif "-o " in block:
        assert (tmp_path / "flights_by_carrier.csv").read_text().startswith("origin,carrier,flights")
        with pa.ipc.open_stream((tmp_path / "flights.arrow").read_bytes()) as reader:
            assert reader.read_all().num_rows == 30
    else:
        assert json.loads("[" + printed.replace("}{", "},{") + "]")[0]["txid"] == 2
