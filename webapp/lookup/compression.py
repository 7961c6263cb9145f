"""Answers of the API packed by gzip, for clients that take it.

JSON of the API alone: its documents repeat no secret beside what a client sends, so that their packed size tells
nothing (BREACH), which cannot be said of pages with a CSRF token. Streams go as they are: packing would collect them.
"""

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.middleware.gzip import GZipMiddleware

JSON = ("application/json", "application/problem+json")

# A packet's worth: less is not sent any faster.
LEAST_BYTES = 1_024


class PackedAnswers(GZipMiddleware):
    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        if not isinstance(response, HttpResponse) or not request.path_info.startswith("/api/v1/"):
            return response
        if len(response.content) < LEAST_BYTES or response.get("Content-Type") not in JSON:
            return response
        return super().process_response(request, response)
