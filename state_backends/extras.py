"""Packages that come with an extra of the distribution, as `tidegauge[spark]`, and are loaded at first use.

`state_backends` alone needs psycopg and nothing else: Arrow is for batches of a pipeline, redis-py for states in Redis,
and `datasketches` folds sketches.
"""

import importlib
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from tidegauge.state_backends.errors import MissingPackageError

# The name on the package index.
DISTRIBUTION = "tidegauge"

# What is imported, and the extra to install for it. pyproject.toml says what an extra has.
EXTRAS = {
    "redis": "redis",
    **dict.fromkeys(("datasketches", "orjson", "py4j", "pyarrow", "pyspark", "structlog"), "spark"),
    **dict.fromkeys(("celery", "django", "django_celery_beat", "django_htmx", "drf_spectacular", "environ"), "web"),
    **dict.fromkeys(("granian", "kombu", "prometheus_client", "rest_framework", "rich", "unfold", "whitenoise"), "web"),
    "psutil": "embedded",
    "httpx": "client",
    **dict.fromkeys(("fastavro", "google"), "registry"),
    **dict.fromkeys(("mozilla_django_oidc", "requests"), "oidc"),
}


def with_extras(extras: str) -> str:
    """Return what to install: the distribution with extras, which are separated by commas."""
    return f"{DISTRIBUTION}[{extras}]"


class OptionalModule(ModuleType):
    """A module that is imported when an attribute of it is first used; from then on it costs what a module costs."""

    def __getattr__(self, name: str) -> Any:
        with naming_the_extra():
            value = getattr(importlib.import_module(self.__name__), name)
        setattr(self, name, value)
        return value


@contextmanager
def naming_the_extra() -> Iterator[None]:
    """Raise MissingPackageError, with what to install, where a package of an extra is missing or too old."""
    try:
        yield
    except MissingPackageError:
        raise
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        found = "is not installed; install"
        if importlib.util.find_spec(package) is not None:
            version = getattr(importlib.import_module(package), "__version__", "unknown")
            found = f"is of version {version!r}, which lacks what is needed ({error.msg}); install the one of"
        raise MissingPackageError(
            f"package {package!r} {found} {with_extras(EXTRAS[package])}, which has it", name=package
        ) from error
