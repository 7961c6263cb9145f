"""Acts that ask first: what a person does on the page of the confirmation."""

from typing import Any

from django.http import HttpResponse
from django.test import Client


def confirm(client: Client, address: str, **options: Any) -> HttpResponse:
    """Open the page of an act, and press its button."""
    page = client.get(address)
    return client.post(address.partition("?")[0], dict(page.context["confirmation"].posted), **options)
