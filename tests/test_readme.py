"""The README shows what is there: the pipeline is the job, and the files it names exist."""

import re
import subprocess
import sys

from pipelines.runtime.home import REPOSITORY

README = (REPOSITORY / "README.md").read_text()


def test_the_fifteen_lines_are_the_word_count_job():
    shown, _ = re.findall(r"```python\n(.*?)```", README, re.DOTALL)

    job = (REPOSITORY / "pipelines" / "jobs" / "word_count.py").read_text()

    assert job.endswith(shown)
    assert len([line for line in shown.splitlines() if line.strip()]) <= 15


def test_the_library_alone_does_what_it_shows():
    _, shown = re.findall(r"```python\n(.*?)```", README, re.DOTALL)

    ran = subprocess.run([sys.executable, "-c", shown], cwd=REPOSITORY, capture_output=True, text=True, check=True)

    assert ran.stdout.strip() == shown.splitlines()[-1].split("# ")[1]


def test_the_files_it_names_exist():
    named = set(re.findall(r"`((?:[a-z_]+/)+[a-z_]*\.?[a-z]*)`", README))

    assert len(named) > 10
    assert [name for name in named if not (REPOSITORY / name).exists()] == []
