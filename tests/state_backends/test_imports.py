import subprocess
import sys

import pytest

LOADED = """
import sys
from tidegauge import state_backends
backends = list(state_backends.BACKENDS.values())
print(*{name.removeprefix("tidegauge.").split(".")[0] for name in sys.modules})
"""


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    """The packages that a fresh interpreter has loaded after it has loaded the backends."""
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("package", ["django", "pyspark", "py4j", "redis", "celery", "webapp", "pipelines"])
def test_the_library_loads_without(loaded, package):
    assert package not in loaded


def test_every_public_name_is_there():
    from tidegauge import state_backends

    assert [name for name in state_backends.__all__ if not hasattr(state_backends, name)] == []


def test_every_error_that_a_caller_may_catch_is_public():
    from tidegauge import state_backends
    from tidegauge.state_backends import errors

    defined = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}

    assert defined <= set(state_backends.__all__)
