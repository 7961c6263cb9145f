"""What a web process counts of its requests."""

import pytest
from django.http import HttpResponse, StreamingHttpResponse
from django.test import RequestFactory

from tests.webapp.committed_flights import committed_flights
from tidegauge.webapp.core import metrics
from tidegauge.webapp.core.metrics import REGISTRY
from tidegauge.webapp.serving.observer import RequestObserver

PHASES = ("authenticate", "parse", "query", "render")


@pytest.fixture
def grown():
    """By how much a metric has grown since the test began."""
    before: dict[tuple[str, tuple], float] = values()

    def find(name, **labels):
        sample = (name, tuple(sorted(labels.items())))
        return values().get(sample, 0.0) - before.get(sample, 0.0)

    return find


def values():
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in REGISTRY.collect()
        for sample in family.samples
    }


def looked_up(state, keys, status=200):
    def view(request):
        for phase in PHASES[:3]:
            metrics.phase_ended(request, phase)
        metrics.looked_up(request, state, keys)
        return HttpResponse(status=status)

    return view


def answer(view, method="GET"):
    return RequestObserver(view)(RequestFactory().generic(method, "/"))


def test_requests_are_counted_by_route_method_and_status(client, db, grown):
    client.get("/healthz")
    client.get("/nothing/here")
    client.get("/nothing/there")

    assert grown("tidegauge_http_requests_total", route="healthz", method="GET", status="200") == 1
    assert grown("tidegauge_http_requests_total", route="-", method="GET", status="404") == 2
    assert grown("tidegauge_http_request_seconds_count", route="healthz") == 1


def test_unknown_methods_share_a_label(grown):
    for method in ("BREW", "STEEP"):
        answer(lambda request: HttpResponse(), method)

    assert grown("tidegauge_http_requests_total", route="-", method="other", status="200") == 2


@pytest.mark.parametrize("status", [200, 304])
def test_the_time_of_a_lookup_is_counted_by_phase(grown, status):
    answer(looked_up("flights", 7, status))

    for phase in PHASES:
        assert grown("tidegauge_lookup_seconds_count", state="flights", phase=phase) == 1
        assert grown("tidegauge_lookup_seconds_sum", state="flights", phase=phase) > 0
    assert grown("tidegauge_lookup_keys_sum", state="flights") == 7


def test_the_phases_of_a_lookup_make_up_its_time(grown):
    answer(looked_up("flights", 7))

    parts = sum(grown("tidegauge_lookup_seconds_sum", state="flights", phase=phase) for phase in PHASES)

    assert 0 < parts <= grown("tidegauge_http_request_seconds_sum", route="-")


def test_several_states_at_once_are_counted_together(grown):
    def view(request):
        metrics.looked_up(request, "flights", 2)
        metrics.looked_up(request, "totals", 1)
        return HttpResponse()

    answer(view)

    assert grown("tidegauge_lookup_keys_sum", state=metrics.SEVERAL) == 3


def test_an_unknown_state_adds_no_label(client, key, connection):
    client.post(
        "/api/v1/states/invented/lookup", {"keys": []}, "application/json", headers={"Authorization": f"Bearer {key}"}
    )

    assert not any("invented" in str(sample) for sample in values())


def test_refusals_by_a_rate_limit_are_counted(grown):
    answer(lambda request: HttpResponse(status=429))

    assert grown("tidegauge_rate_limited_requests_total", route="-") == 1


def test_a_stream_is_timed_to_its_end(db, grown):
    response = answer(lambda request: StreamingHttpResponse(iter([b"1", b"2"])))
    assert grown("tidegauge_http_requests_total", route="-", method="GET", status="200") == 0

    list(response)
    response.close()

    assert grown("tidegauge_http_requests_total", route="-", method="GET", status="200") == 1


def test_rows_of_streams_add_up(grown):
    metrics.exported("flights", 500)
    metrics.exported("flights", 20)

    assert grown("tidegauge_export_rows_total", state="flights") == 520


def test_a_stream_of_entries_counts_its_rows(transactional_db, client, key, grown):
    headers = {"Authorization": f"Bearer {key}"}
    with committed_flights():
        rows = b"".join(
            client.get("/api/v1/states/flights_by_carrier/export?format=ndjson", headers=headers)
        ).splitlines()

    assert len(rows) == 60
    assert grown("tidegauge_export_rows_total", state="flights_by_carrier") == 60


def test_a_view_that_runs_without_the_middleware_counts_nothing():
    assert looked_up("flights", 7)(RequestFactory().get("/")).status_code == 200
