"""The README and the page of the library show what is there: the pipeline is the job, and the program prints that."""

import re
import subprocess
import sys

from tidegauge.pipelines.embedded.data_dir import REPOSITORY

README = (REPOSITORY / "README.md").read_text()
PAGE = (REPOSITORY / "docs" / "library.md").read_text()
[JOB], [LIBRARY] = (re.findall(r"```python\n(.*?)```", text, re.DOTALL) for text in (README, PAGE))
MOST_WORDS = 900
PRINTED = LIBRARY.splitlines()[-1].split("# ")[1]


def test_the_fifteen_lines_are_the_word_count_job():
    job = (REPOSITORY / "pipelines" / "jobs" / "word_count.py").read_text()

    assert job.partition("WORDS = ")[2] == JOB.partition("WORDS = ")[2]
    assert len([line for line in JOB.splitlines() if line.strip()]) <= 15


def printed(program: str) -> str:
    ran = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    return ran.stdout.strip()


def replaced(line: str, by: str, program: str = LIBRARY) -> str:
    assert line in program
    return program.replace(line, by)


def test_the_library_alone_does_what_it_shows():
    assert printed(LIBRARY) == PRINTED


def test_without_its_rollback_it_counts_a_key_twice_that_the_replay_lacks():
    program = replaced("    counts.rollback(txid)", "    ")

    assert (PRINTED, printed(program)) == ("[6, 3]", "[6, 6]")
    assert "`/cart` would be 6" in PAGE


def test_it_does_the_same_over_an_empty_database(database_url):
    over_postgres = re.findall(r"`(PostgresBackingMap\(.*?\))`", PAGE)[0]
    opened = f"import psycopg; conn = psycopg.connect({database_url!r}, autocommit=True)\n"
    program = replaced("MemoryBackingMap(views)", over_postgres)
    program = replaced("import CachedMap", "import PostgresBackingMap, CachedMap", program)

    assert printed(opened + program) == PRINTED


def test_the_readme_is_short_and_the_pages_it_leads_to_exist():
    pages = set(re.findall(r"\]\(([^)]+)\)", README))

    assert len(README.split()) <= MOST_WORDS
    assert len(pages) > 20
    assert [page for page in pages if not (REPOSITORY / page).exists()] == []
