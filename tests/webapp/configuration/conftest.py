from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.webapp.fixtures import connection, filled, flights, lasting
from tidegauge.webapp.accounts import authentication
from tidegauge.webapp.accounts.models import ApiKey
from tidegauge.webapp.configuration import services
from tidegauge.webapp.configuration.document import Part, merged
from tidegauge.webapp.configuration.services import Applied
from tidegauge.webapp.notify.alerts.models import AlertRule
from tidegauge.webapp.notify.webhooks.models import Webhook

__all__ = ["connection", "filled", "flights", "lasting"]

HOOK = {"url": "https://hooks.example.com/t0ps3cret"}
BUSIEST = {"definition": {"reads": [{"state": "totals", "keys": [[]]}]}}
# One object of each kind, in the order in which a person would write them, which is not the order of dependence.
EVERY_KIND = {
    "api_keys": {"board": {"states": ["totals"], "rate": 600}},
    "alert_rules": {"lag": {"lag_seconds": 300, "webhooks": ["ops"]}},
    "webhooks": {"ops": HOOK},
    "saved_queries": {"busiest": BUSIEST},
    "pipeline_limits": {"flights": {"stale_seconds": 600}},
    "states": {"totals": {"retention": "30 days"}},
    "schedule": {"Compact all states": {"work": "compaction", "every": "2 hours"}},
}


@pytest.fixture(autouse=True)
def empty_cache() -> None:
    authentication.clear_cache()


def apply(*contents: dict[str, Any], **options: Any) -> Applied:
    return services.apply(document(*contents), **options)


def differing(*contents: dict[str, Any], **options: Any) -> list[tuple[str, str, str]]:
    return [(each.act, each.kind, each.name) for each in services.diff(document(*contents), **options)]


def document(*contents: dict[str, Any]):
    return merged(Part(f"{number}.yaml", content) for number, content in enumerate(contents, 1))


@pytest.fixture
def file(tmp_path) -> Callable[..., str]:
    """Writes a file and returns its path."""

    def write(text: str, name: str = "tidegauge.yaml") -> str:
        path = Path(tmp_path / name)
        path.write_text(text)
        return str(path)

    return write


def wipe() -> None:
    """Remove what `apply` can create, but not what the schedule and states have from the start."""
    ApiKey.objects.all().delete()
    AlertRule.objects.all().delete()
    Webhook.objects.all().delete()
