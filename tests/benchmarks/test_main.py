"""The command line of the benchmarks."""

import os
import subprocess
import sys

from benchmarks.structure import ROOT


def benchmarks(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
    )


def test_it_starts_without_django_settings_and_lists_the_benchmarks():
    done = benchmarks("--help")

    assert done.returncode == 0
    listed = " ".join(done.stdout.split())
    assert (
        "merge, generic, redis, bulk, scaling, spread, large, windows, pipelines, states, memory, ingest, nexmark, "
        "batch-cost, freshness, lookup, latency, abuse, events, network" in listed
    )
    assert "number of keys, of the largest state; used by bulk, scaling" in listed


def test_an_unknown_name_is_refused_before_anything_is_measured():
    done = benchmarks("lookup", "look-up")

    assert done.returncode == 2
    assert "there is no benchmark 'look-up'; choose from merge, generic" in done.stderr
