"""The Grafana dashboard and the alerts use metrics that exist, and the dashboard shows every metric."""

import json
import re

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tidegauge.pipelines.embedded.data_dir import REPOSITORY
from tidegauge.webapp.core.metrics import render
from tidegauge.webapp.events import stream as _stream  # noqa: F401  registers the metrics of the event streams
from tidegauge.webapp.serving.stored_metrics import ReplicaMetrics, StoredMetrics

DOCKER = REPOSITORY / "docker"
DASHBOARD = json.loads((DOCKER / "grafana" / "tidegauge.json").read_text())
NAME = re.compile(r"\btidegauge_\w+")
SERIES_OF = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("_total",), "gauge": ("",)}


@pytest.fixture
def series(filled):
    """The names of time series by metric."""
    text, _ = render(StoredMetrics(), ReplicaMetrics())
    families = [f for f in text_string_to_metric_families(text.decode()) if f.name.startswith("tidegauge_")]
    return {family.name: {family.name + end for end in SERIES_OF[family.type]} for family in families}


def names_in(text):
    return set(NAME.findall(text))


def expressions():
    return [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", [])]


def test_every_metric_on_the_dashboard_exists(series):
    variables = [variable["definition"] for variable in DASHBOARD["templating"]["list"] if "definition" in variable]

    shown = names_in(" ".join([*expressions(), *variables]))

    assert len(shown) > 20
    assert shown - set().union(*series.values()) == set()


def test_every_metric_is_on_the_dashboard(series):
    shown = names_in(" ".join(expressions()))

    assert [name for name, names in series.items() if not names & shown] == []


def test_the_alerts_use_metrics_that_exist(series):
    rules = yaml.safe_load((DOCKER / "prometheus-alerts.yml").read_text())["groups"][0]["rules"]

    used = names_in(" ".join(rule["expr"] for rule in rules))

    assert len(used) > 5
    assert used - set().union(*series.values()) == set()


def test_every_alert_is_explained():
    rules = yaml.safe_load((DOCKER / "prometheus-alerts.yml").read_text())["groups"][0]["rules"]
    manual = (REPOSITORY / "docs" / "operations.md").read_text()

    assert [rule["alert"] for rule in rules if f"`{rule['alert']}`" not in manual] == []


def test_the_labels_that_expressions_group_by_exist(filled):
    text, _ = render(StoredMetrics(), ReplicaMetrics())
    # Labels without a sample so far, and those that Prometheus adds.
    labels = set(re.findall(r"[{,](\w+)=", text.decode())) | {
        "le",
        "instance",
        "phase",
        "state",
        "route",
        "event",
        "replica",
        "key",
        "webhook",
    }

    grouped = {
        name for e in expressions() for names in re.findall(r"by \(([\w, ]+)\)", e) for name in names.split(", ")
    }

    assert grouped - labels == set()


def test_the_dashboard_can_be_imported_into_any_grafana():
    assert "uid" not in DASHBOARD
    assert "id" not in DASHBOARD
    sources = {panel["datasource"]["uid"] for panel in DASHBOARD["panels"] if "datasource" in panel}
    assert sources == {"${datasource}"}


def test_panels_do_not_overlap():
    taken = [
        (panel["gridPos"]["x"] + x, panel["gridPos"]["y"] + y)
        for panel in DASHBOARD["panels"]
        for x in range(panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["h"])
    ]

    assert len(taken) == len(set(taken))
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
