"""The PostgreSQL and Redis of a test process: its own, unless the environment names others.

A plugin instead of a conftest.py, because it has to know whether this process runs tests: with pytest-xdist each worker
has servers of its own, and the process that only distributes the tests has none. They start before a conftest.py is
imported, because Django reads their addresses when its settings are imported. Their data folder is removed at the end.
"""

import os
import signal
import tempfile
from pathlib import Path

import psutil
import pytest

from tests.java_options import set_java_options
from tidegauge.pipelines.embedded.temporary import start_temporary_servers
from tidegauge.pipelines.errors import RuntimeSetupError

# Of web processes and of the tests' own. They are set here because pytest-django imports Django's settings before any
# conftest.py is imported.
SETTINGS = {
    # All tests share one client address; the tests of rate limits set their own limits.
    "TIDEGAUGE_WRONG_KEY_RATE_PER_MINUTE": "0",
    "TIDEGAUGE_ANONYMOUS_RATE_PER_MINUTE": "0",
    # A thread that stores counts would write beside the tests; those of usage store them themselves.
    "TIDEGAUGE_USAGE_FLUSH_SECONDS": "0",
}

# A folder in memory. All tests at once have some 2 GB of files, and containers often give it 64 MB.
MEMORY = Path("/dev/shm")  # noqa: S108
NEEDED = 8 * 2**30


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    keep_files_in_memory()
    distributes = bool(early_config.known_args_namespace.numprocesses) and "PYTEST_XDIST_WORKER" not in os.environ
    if not distributes:
        # SIGTERM stops the servers, as Ctrl-C does.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            start_temporary_servers()
        except RuntimeSetupError as error:
            pytest.exit(f"no servers for the tests: {error}", returncode=1)
    set_java_options()
    os.environ.update(SETTINGS)
    # Not in pyproject.toml: pytest-django would read the settings before the servers have an address.
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tidegauge.webapp.settings")


def keep_files_in_memory(memory: Path = MEMORY) -> None:
    """Make `memory` the folder for temporary files, unless TMPDIR names one, or it has little room or runs no programs.

    Databases and checkpoints of tests are files that are soon deleted: on a disk the tests wait a sixth of their time.
    """
    if "TMPDIR" not in os.environ and os.access(memory, os.W_OK | os.X_OK):
        found = os.statvfs(memory)
        free = min(found.f_bavail * found.f_frsize, psutil.virtual_memory().available)
        if free >= NEEDED and not found.f_flag & os.ST_NOEXEC:
            os.environ["TMPDIR"] = str(memory)
            tempfile.tempdir = None  # read again
