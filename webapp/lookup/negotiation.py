"""Which format an answer has: `?format=csv` where a call has several, else what `Accept` says."""

from collections.abc import Iterable, Sequence

from rest_framework.exceptions import ParseError
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request


class Negotiation(DefaultContentNegotiation):
    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        renderers = list(renderers)
        asked = request.query_params.get("format") if len(renderers) > 1 else None
        if asked is not None:
            return _named(asked, renderers)
        # Nearly every request; reading its header to no end would cost a lookup a twentieth of its time.
        first = renderers[0].media_type or ""
        if request.META.get("HTTP_ACCEPT", "*/*") in ("*/*", first):
            return renderers[0], first
        return super().select_renderer(request, renderers, None)


def _named(asked: str, renderers: Sequence[BaseRenderer]) -> tuple[BaseRenderer, str]:
    for renderer in renderers:
        if renderer.format == asked:
            return renderer, renderer.media_type or ""
    known = ", ".join(str(renderer.format) for renderer in renderers)
    raise ParseError(f"format must be one of {known}, got {asked[:40]!r}")
