"""Pages of other origins that may listen with their reader's session: exactly those of the settings, never all."""

from django.conf import settings

ALLOWED_HEADERS = "Authorization, X-Api-Key, Last-Event-ID, X-Request-ID, Cache-Control"


def is_welcome(origin: str) -> bool:
    return origin in settings.TIDEMARK_EVENTS_ORIGINS


def cors_headers(origin: str | None) -> dict[str, str]:
    if origin is None or not is_welcome(origin):
        return {"Vary": "Origin"}
    return {
        "Vary": "Origin",
        "Access-Control-Allow-Origin": origin,
        "Access-Control-Allow-Credentials": "true",
        "Access-Control-Expose-Headers": "X-Request-ID, Retry-After",
    }


def preflight_headers(origin: str | None) -> dict[str, str]:
    allowed = {"Access-Control-Allow-Methods": "GET", "Access-Control-Allow-Headers": ALLOWED_HEADERS}
    return cors_headers(origin) | (allowed if origin is not None and is_welcome(origin) else {})
