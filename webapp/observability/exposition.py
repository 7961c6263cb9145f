"""The figures of a service in Prometheus's text format, those of its sibling processes included."""

import os

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from webapp.observability import sharing
from webapp.observability.metrics import REGISTRY


def render(*more: Collector) -> tuple[bytes, str]:
    """Return what this service has counted, and what `more` collects, with its content type."""
    registry = CollectorRegistry()
    if sharing.VARIABLE in os.environ:
        sharing.forget_the_dead()
        MultiProcessCollector(registry)
    else:
        registry.register(REGISTRY)
    for collector in more:
        registry.register(collector)
    return generate_latest(registry), CONTENT_TYPE_LATEST
