"""A page that stands still: the answer to a form, which no poll may replace."""

from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.timezone import now


def still_page(request: HttpRequest, template: str, context: Mapping[str, Any], status: int = 200) -> HttpResponse:
    return render(request, template, {**context, "layout": "dashboard/base.html", "now": now()}, status=status)
