"""The command line of the benchmarks."""

import os
import subprocess
import sys

from benchmarks.structure import ROOT


def test_it_starts_without_django_settings_and_lists_the_benchmarks():
    environ = {"PATH": os.environ["PATH"]}

    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--help"],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )

    assert "merge,generic,redis,bulk,scaling,ingest,batch-cost,freshness,lookup,events,all" in done.stdout
