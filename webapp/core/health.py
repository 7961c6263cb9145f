"""Who may see how the system is doing: metrics, and the names of what is stale.

A token opens it from everywhere. Without one, only the machine itself may look, and nobody whom a proxy on that
machine speaks for.
"""

import hmac
from ipaddress import ip_address
from typing import Any

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, Error, connection, connections
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from webapp.core.metrics import render
from webapp.core.stored_metrics import StoredFigures
from webapp.core.system_snapshot import Freshness, freshness, look

FORWARDED = ("HTTP_X_FORWARDED_FOR", "HTTP_FORWARDED", "HTTP_X_REAL_IP")


def may_observe(request: HttpRequest) -> bool:
    token = settings.TIDEMARK_METRICS_TOKEN
    return has_token(request.META.get("HTTP_AUTHORIZATION", ""), token) if token else _is_local(request)


def has_token(authorization: str, token: str) -> bool:
    """Tell whether an `Authorization` header is `Bearer` and the token."""
    scheme, _, given = authorization.partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token.encode())


def _is_local(request: HttpRequest) -> bool:
    try:
        address = ip_address(request.META.get("REMOTE_ADDR", ""))
    except ValueError:
        return False  # a socket file, behind which there is a proxy
    return address.is_loopback and not any(header in request.META for header in FORWARDED)


# Is this process able to answer, and how fresh is what it answers? For load balancers and for people.
#
# `/healthz` asks whether the database answers. `/readyz` refuses traffic only where nothing can be served: a stale
# state is exact as of its txid, so it is served, and said to be stale.


class _Migrations:
    """Whether the tables are there. Once they are, they stay."""

    applied = False

    def missing(self) -> bool:
        if not self.applied:
            executor = MigrationExecutor(connections[DEFAULT_DB_ALIAS])
            self.applied = not executor.migration_plan(executor.loader.graph.leaf_nodes())
        return not self.applied


migrations = _Migrations()


@require_safe
@never_cache
def healthz(request: HttpRequest) -> JsonResponse:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except Error:
        return JsonResponse({"status": "unwell", "database": "does not answer"}, status=503)
    return JsonResponse({"status": "ok", "database": "ok"})


@require_safe
@never_cache
def readyz(request: HttpRequest) -> JsonResponse:
    try:
        if migrations.missing():
            return JsonResponse({"status": "unready", "reason": "migrations are missing"}, status=503)
        pipelines = freshness(look())
    except Error:
        return JsonResponse({"status": "unready", "reason": "the database does not answer"}, status=503)
    return JsonResponse(_report(pipelines, with_names=_may_see_names(request)))


def _may_see_names(request: HttpRequest) -> bool:
    return settings.TIDEMARK_READYZ_NAMES or may_observe(request) or request.user.is_authenticated


def _report(pipelines: list[Freshness], *, with_names: bool) -> dict[str, Any]:
    stale = [one for one in pipelines if one.reason]
    counts = {"fresh": len(pipelines) - len(stale), "stale": len(stale)}
    report = {"status": "stale" if stale else "ready", **counts}
    return report | {"pipelines": [_document(one) for one in pipelines]} if with_names else report


def _document(pipeline: Freshness) -> dict[str, Any]:
    return {
        "name": pipeline.name,
        "status": pipeline.status,
        "stale": bool(pipeline.reason),
        "committed_txid": pipeline.committed_txid,
        "committed_at": pipeline.committed_at,
        "stale_seconds": pipeline.seconds if pipeline.reason else 0.0,
        "reason": pipeline.reason,
    }


# `/metrics`, for Prometheus.


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
