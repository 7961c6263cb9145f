"""A small soak ends exact, and a control run, in which a guard is turned off, does not.

The long one is `make soak ARGS="--minutes 30"`; see docs/reliability.md.
"""

import subprocess
import sys

import pytest

from tests.soak.run import soak
from tests.soak.transfers import VARIANTS
from tests.soak.world import Options
from tidegauge.pipelines.embedded.data_dir import REPOSITORY

SEED = 11

# Guard to the kind of pipeline and the faults that it guards against.
CONTROLS = {
    "revert": ("opaque", "open batch replayed with other rows"),
    "fence": ("opaque", "killed drivers task goes on"),
    "snapshot": ("tables", "database black holed"),
    "epoch": ("opaque", "task from before a restore goes on"),
    "fingerprint": ("tables", "checkpoint one batch back"),
}


@pytest.mark.core
@pytest.mark.processes
def test_states_are_exact_after_each_of_a_few_faults(tmp_path):
    result = soak(tmp_path / "soak", Options(SEED), faults=5, variants=["mixed"])

    assert [record for record in result.records if not record.is_explained] == []
    assert len(result.records) == 5
    assert min(result.answers[name] for name in ("combined", "looked up", "exported")) > 10


@pytest.mark.soak
@pytest.mark.parametrize("guard", CONTROLS)
def test_a_run_without_a_guard_is_caught(guard, tmp_path):
    variant, name = CONTROLS[guard]
    words = ["--off", guard, "--variant", variant, "--fault", name, "--faults", "12", "--seed", str(SEED)]

    # In a process of its own, whose readers may be changed too.
    done = subprocess.run(
        [sys.executable, "-m", "tests.soak", *words, "--folder", str(tmp_path / "soak")],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 1, done.stdout + done.stderr
    assert "DEVIATION" in done.stdout


@pytest.mark.soak
@pytest.mark.parametrize("variant", VARIANTS)
def test_states_are_exact_after_each_fault_of_a_longer_run(variant, tmp_path):
    result = soak(tmp_path / "soak", Options(SEED), faults=12, variants=[variant])

    assert [record for record in result.records if not record.is_explained] == []
