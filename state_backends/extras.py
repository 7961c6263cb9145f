"""Packages that come with an extra of the distribution, such as `tidegauge[spark]`, and are loaded at first use.

`state_backends` itself needs only psycopg. Arrow is for batches of a pipeline, redis-py for states in Redis, and
`datasketches` folds sketches.
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

# Imported package to the extra that installs it. pyproject.toml lists the contents of each extra.
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
    """Return the requirement to install: the distribution with these extras, separated by commas."""
    return f"{DISTRIBUTION}[{extras}]"


class OptionalModule(ModuleType):
    """A module that is imported when an attribute is first used. It keeps the attribute, so later uses are fast."""

    def __getattr__(self, name: str) -> Any:
        with naming_the_extra():
            value = getattr(importlib.import_module(self.__name__), name)
        setattr(self, name, value)
        return value


@contextmanager
def naming_the_extra() -> Iterator[None]:
    """Raise MissingPackageError, naming what to install, if a package of an extra is missing or too old."""
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
            found = f"has version {version!r}, which lacks what is needed ({error.msg}); install the one from"
        raise MissingPackageError(
            f"package {package!r} {found} {with_extras(EXTRAS[package])}, which has it", name=package
        ) from error
