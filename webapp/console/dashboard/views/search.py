"""Search: the page, and the part of it that the dialog of every other page shows."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.cache import patch_vary_headers
from django.views.decorators.http import require_safe

from tidegauge.webapp.console.dashboard.search.search import search
from tidegauge.webapp.console.dashboard.views.live import signed_in, static_page


@require_safe
@signed_in
def search_page(request: HttpRequest) -> HttpResponse:
    context = {"found": search(request)}
    if request.htmx:  # type: ignore[attr-defined]
        response = render(request, "dashboard/search_results.html", context)
    else:
        response = static_page(request, "dashboard/search.html", context)
    patch_vary_headers(response, ["HX-Request"])
    return response
