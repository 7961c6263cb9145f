"""What a page answers that was asked about something that is not there: what there is."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from webapp.states import selectors


def no_pipeline(request: HttpRequest, name: str) -> HttpResponse:
    return _missing(request, "pipeline", name, selectors.pipeline_names())


def no_state(request: HttpRequest, name: str) -> HttpResponse:
    return _missing(request, "state", name, selectors.state_names())


def no_batch(request: HttpRequest, pipeline: str, txid: int) -> HttpResponse:
    shown = {"kind": "batch", "name": txid, "back": reverse("dashboard:batches", args=[pipeline])}
    return render(request, "dashboard/missing.html", shown, status=404)


def no_run(request: HttpRequest, run_id: int) -> HttpResponse:
    shown = {"kind": "maintenance run", "name": run_id, "back": reverse("dashboard:maintenance")}
    return render(request, "dashboard/missing.html", shown, status=404)


def _missing(request: HttpRequest, kind: str, name: str, names: list[str]) -> HttpResponse:
    there_are = [(other, reverse(f"dashboard:{kind}", args=[other])) for other in names]
    return render(request, "dashboard/missing.html", {"kind": kind, "name": name, "there_are": there_are}, status=404)
