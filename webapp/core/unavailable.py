"""What a page says while the database is away, or takes too long: that nothing is lost, and that it will be back."""

from collections.abc import Callable

import psycopg
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.template import loader

UNAVAILABLE = (psycopg.OperationalError, psycopg.InterfaceError, OperationalError, InterfaceError)

# Long enough for a database that restarts, short enough for somebody who waits.
RETRY_SECONDS = 5


class DatabaseUnavailableMiddleware:
    """Answers the pages' requests that fail for want of a database; the API tells its clients in its own way."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        if not isinstance(exception, UNAVAILABLE) or request.path.startswith(("/api/", "/admin/")):
            return None
        return database_unavailable(request, exception)


def database_unavailable(request: HttpRequest, exception: Exception) -> HttpResponse:
    is_slow = isinstance(exception.__cause__ or exception, psycopg.errors.QueryCanceled)
    # No request: whatever asks who is signed in would ask the database again.
    page = loader.render_to_string("dashboard/unavailable.html", {"is_slow": is_slow, "seconds": RETRY_SECONDS})
    headers = {"Retry-After": str(RETRY_SECONDS)}
    if request.method == "GET":
        headers["Refresh"] = str(RETRY_SECONDS)
    return HttpResponse(page, status=503, headers=headers)
