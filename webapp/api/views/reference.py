"""The description of the API: as OpenAPI, and the same as a page."""

from django.http import HttpResponse
from django.shortcuts import render
from django.utils.timezone import now
from drf_spectacular.views import SpectacularAPIView
from rest_framework.authentication import SessionAuthentication
from rest_framework.request import Request

from tidegauge.webapp.api.api_view import AllowedMethods
from tidegauge.webapp.api.reference import reference


class SchemaView(AllowedMethods, SpectacularAPIView):
    pass


class DocsView(AllowedMethods):
    """The same document as a page."""

    schema = None  # not a call of the API
    authentication_classes = [SessionAuthentication]
    permission_classes = SchemaView.permission_classes

    def get(self, request: Request) -> HttpResponse:
        document = SchemaView.generator_class().get_schema(public=True)
        shown = {
            "reference": reference(document, request.build_absolute_uri("/").rstrip("/")),
            "layout": "dashboard/base.html",
            "now": now(),
        }
        return render(request._request, "dashboard/reference.html", shown)
