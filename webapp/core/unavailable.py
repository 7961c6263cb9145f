"""Answers pages with a 503 while the database is unavailable or too slow."""

from collections.abc import Callable

import psycopg
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.template import loader

DATABASE_ERRORS = (psycopg.OperationalError, psycopg.InterfaceError, OperationalError, InterfaceError)
# Long enough for a database that restarts, short enough for a user who waits.
RETRY_SECONDS = 5


class DatabaseUnavailableMiddleware:
    """Answers a page with a 503 if the database is unavailable or too slow. The API handles that itself."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        if not isinstance(exception, DATABASE_ERRORS) or request.path.startswith("/api/"):
            return None
        return unavailable_page(request, exception)


def unavailable_page(request: HttpRequest, exception: Exception) -> HttpResponse:
    is_slow = isinstance(exception.__cause__ or exception, psycopg.errors.QueryCanceled)
    # Rendered without the request, whose context processors would query the database for the user.
    page = loader.render_to_string("dashboard/unavailable.html", {"is_slow": is_slow, "seconds": RETRY_SECONDS})
    headers = {"Retry-After": str(RETRY_SECONDS)}
    if request.method == "GET":
        headers["Refresh"] = str(RETRY_SECONDS)
    return HttpResponse(page, status=503, headers=headers)
