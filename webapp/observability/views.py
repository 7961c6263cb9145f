"""`/metrics`, for Prometheus."""

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from webapp.observability.access import may_observe
from webapp.observability.exposition import render
from webapp.observability.stored import StoredFigures

REFUSAL = "metrics are for whoever has TIDEMARK_METRICS_TOKEN, as Authorization: Bearer <token>; {}\n"


@require_safe
@never_cache
def metrics(request: HttpRequest) -> HttpResponse:
    if not may_observe(request):
        return _refused()
    text, content_type = render(StoredFigures())
    return HttpResponse(text, content_type=content_type)


def _refused() -> HttpResponse:
    if settings.TIDEMARK_METRICS_TOKEN:
        hint = "this is another one, or none"
        return HttpResponse(
            REFUSAL.format(hint), status=401, content_type="text/plain", headers={"WWW-Authenticate": "Bearer"}
        )
    hint = "while it is not set, only this machine may see them"
    return HttpResponse(REFUSAL.format(hint), status=403, content_type="text/plain")
