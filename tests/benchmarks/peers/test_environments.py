"""Peers are optional: pinned, outside of Tidegauge's own environment, and run only if they are named."""

import os
import re
import subprocess
import sys
from xml.etree import ElementTree

import pytest
from packaging.requirements import Requirement

from benchmarks.peers.environments import HERE
from benchmarks.registry import ALL, BENCHMARKS
from benchmarks.structure import ROOT

PEERS = {"feast": "feast", "trident": "trident", "yahoo": "trident"}  # benchmark to its environment


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_runs_only_if_it_is_named(name):
    assert name in BENCHMARKS
    assert name not in ALL


@pytest.mark.parametrize(("name", "environment"), PEERS.items())
def test_without_its_environment_a_peer_says_how_to_make_it(name, environment, tmp_path):
    environ = {"PATH": os.environ["PATH"], "TIDEGAUGE_PEERS": str(tmp_path)}

    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", name], cwd=ROOT, env=environ, capture_output=True, text=True
    )

    assert done.returncode == 1
    assert f"create it with `{sys.executable} -m benchmarks.peers {environment}`" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_packages_of_feast_are_pinned_and_name_no_index():
    text = (HERE / "feast" / "requirements.txt").read_text()

    pins = [Requirement(line) for line in text.splitlines() if not line.startswith("#")]
    assert {"feast", "psycopg-pool", "redis"} <= {pin.name for pin in pins}
    assert all([specifier.operator for specifier in pin.specifier] == ["=="] for pin in pins)
    assert not re.search("://|--", text)


def test_the_versions_of_storm_are_pinned_and_no_repository_is_named():
    project = ElementTree.parse(HERE / "trident" / "pom.xml").getroot()  # noqa: S314

    assert project.findtext(".//storm.version") == "2.8.3"
    assert {each.text for each in project.findall(".//dependency/version")} == {"${storm.version}", "${kafka.version}"}
    assert re.fullmatch(r"[\d.]+", project.findtext(".//kafka.version"))
    assert project.find(".//repository") is None
