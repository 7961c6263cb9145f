"""Names of static files, and their compression."""

import gzip
from typing import Any

from django.conf import settings
from django.http import FileResponse, HttpRequest, HttpResponse
from django.utils.cache import patch_vary_headers
from whitenoise.middleware import WhiteNoiseMiddleware  # type: ignore[import-untyped]
from whitenoise.storage import CompressedManifestStaticFilesStorage  # type: ignore[import-untyped]

COMPRESSIBLE = ("text/", "application/json", "image/svg+xml")
# The packages have some 300 files of 2 MB in all, compressed.
MOST_KEPT = 1_000

_kept: dict[tuple[str, str], bytes] = {}


class CollectedOrNotStorage(CompressedManifestStaticFilesStorage):
    """Names static files with a digest, so that browsers cache them, or without one before `collectstatic` has run."""

    def stored_name(self, name):
        return super().stored_name(name) if self.hashed_files else name


class CompressedStaticFiles(WhiteNoiseMiddleware):
    """Serves static files compressed: as `collectstatic` has compressed them, else compressed at the first request.

    The files hold nothing secret, so their compressed size tells nothing.
    """

    @staticmethod
    def serve(static_file: Any, request: HttpRequest) -> HttpResponse | FileResponse:
        response = WhiteNoiseMiddleware.serve(static_file, request)
        if not settings.WHITENOISE_USE_FINDERS or response.status_code != 200 or request.method != "GET":
            return response
        if not response.headers.get("Content-Type", "").startswith(COMPRESSIBLE):
            return response
        patch_vary_headers(response, ["Accept-Encoding"])
        if "gzip" not in request.META.get("HTTP_ACCEPT_ENCODING", "") or "Content-Encoding" in response.headers:
            return response
        return _compressed(response, request.path_info)


def _compressed(response: FileResponse, path: str) -> HttpResponse:
    version = path, response.headers.get("ETag", "")
    file: Any = response.file_to_stream
    packed = _kept.get(version)
    if packed is None:
        if len(_kept) >= MOST_KEPT:
            _kept.clear()
        packed = _kept[version] = gzip.compress(file.read(), mtime=0)
    # Not `response.close()`, which signals the end of the request.
    file.close()
    headers = dict(response.headers) | {"Content-Encoding": "gzip", "Content-Length": str(len(packed))}
    return HttpResponse(packed, headers=headers)
