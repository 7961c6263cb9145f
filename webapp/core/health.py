"""The views /healthz, /readyz and /metrics, and who may see the names and figures in them.

`/healthz` reports whether the database answers. `/readyz` is a 503 only if nothing can be served: a stale state is
exact as of its txid, so it is served, and reported as stale. Names and metrics need TIDEMARK_METRICS_TOKEN; if it is
not set, only clients on this machine may see them, and no client behind a proxy on this machine.
"""

import hmac
from dataclasses import dataclass, replace
from datetime import datetime
from ipaddress import ip_address
from typing import Any

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, Error, connection, connections
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from webapp.accounts.permissions import key_scope
from webapp.core import proxies
from webapp.core.metrics import render
from webapp.core.stored_metrics import ReplicaMetrics, StoredMetrics
from webapp.core.system_snapshot import SystemSnapshot, age, system_snapshot
from webapp.states import replicas
from webapp.states.queries import PipelineStatus
from webapp.states.visible import of_request

FORWARDED = ("HTTP_X_FORWARDED_FOR", "HTTP_FORWARDED", "HTTP_X_REAL_IP")
REFUSAL = "metrics require TIDEMARK_METRICS_TOKEN, as Authorization: Bearer <token>; {}\n"

# Why a pipeline without a driver is stale. A paused or finished pipeline needs none.
WITHOUT_DRIVER = {
    "lost": "its driver stopped responding",
    "stopped": "its driver was stopped",
    "never started": "it was never started",
}


@dataclass(frozen=True)
class Freshness:
    """How old a pipeline's states are. seconds: the age of the oldest input not counted, or of the last commit.

    reason: why it is stale; empty: it is not stale. message: of its driver, which may quote keys and input.
    """

    name: str
    status: str
    committed_txid: int
    committed_at: datetime | None
    seconds: float | None
    reason: str
    message: str = ""


class _Migrations:
    """Whether all migrations are applied. Once they are, the database is not asked again."""

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
        pipelines = _seen(freshness(system_snapshot()), request)
    except Error:
        return JsonResponse({"status": "unready", "reason": "the database does not answer"}, status=503)
    is_user = request.user.is_authenticated
    messages = may_observe(request) or (is_user and key_scope(request).is_unrestricted)
    report = _report(pipelines, names=is_user or messages or settings.TIDEMARK_READYZ_NAMES, messages=messages)
    return JsonResponse(report | _replicas(names=messages))


@require_safe
@never_cache
def metrics(request: HttpRequest) -> HttpResponse:
    if not may_observe(request):
        return _refused()
    text, content_type = render(StoredMetrics(), ReplicaMetrics())
    return HttpResponse(text, content_type=content_type)


def _seen(pipelines: list[Freshness], request: HttpRequest) -> list[Freshness]:
    """Leave out, for a user who is restricted to some states, other pipelines and what drivers say."""
    visible = of_request(request)
    if visible.scope.is_unrestricted:
        return pipelines
    names = {pipeline.name for pipeline in visible.pipelines()}
    return [replace(one, message="") for one in pipelines if one.name in names]


def freshness(snapshot: SystemSnapshot) -> list[Freshness]:
    return [_freshness(one, snapshot.at) for one in snapshot.pipelines]


def _freshness(one: PipelineStatus, now: datetime) -> Freshness:
    reason = _reason(one)
    message = one.message if reason == one.status else ""
    return Freshness(one.name, one.status, one.committed_txid, one.committed_at, _seconds(one, now), reason, message)


def _seconds(pipeline: PipelineStatus, now: datetime) -> float | None:
    if pipeline.lag_seconds is not None and pipeline.is_driven:
        return pipeline.lag_seconds
    return None if pipeline.committed_at is None else age(pipeline.committed_at, now)


def _reason(pipeline: PipelineStatus) -> str:
    if pipeline.status in WITHOUT_DRIVER:
        return WITHOUT_DRIVER[pipeline.status]
    if pipeline.status in ("failed", "restarting"):
        return pipeline.status
    threshold = settings.TIDEMARK_STALE_AFTER_SECONDS
    if pipeline.lag_seconds is not None and pipeline.lag_seconds > threshold:
        return f"its oldest input has waited for {pipeline.lag_seconds:.0f} s, more than {threshold:g} s"
    return ""


def _report(pipelines: list[Freshness], *, names: bool, messages: bool) -> dict[str, Any]:
    stale = [one for one in pipelines if one.reason]
    counts = {"fresh": len(pipelines) - len(stale), "stale": len(stale)}
    report: dict[str, Any] = {"status": "stale" if stale else "ready", **counts}
    report |= {"warnings": proxies.warnings()} if messages and proxies.warnings() else {}
    return report | {"pipelines": [_document(one, messages=messages) for one in pipelines]} if names else report


def _document(pipeline: Freshness, *, messages: bool) -> dict[str, Any]:
    return {
        "name": pipeline.name,
        "status": pipeline.status,
        "stale": bool(pipeline.reason),
        "committed_txid": pipeline.committed_txid,
        "committed_at": pipeline.committed_at,
        "stale_seconds": pipeline.seconds if pipeline.reason else 0.0,
        "reason": f"{pipeline.reason}: {pipeline.message}" if messages and pipeline.message else pipeline.reason,
    }


def _replicas(*, names: bool) -> dict[str, Any]:
    """Return how the replicas stand; nothing where there are none. Without them the primary answers."""
    standings = replicas.configured.standings()
    if not standings:
        return {}
    used = sum(standing.is_used for standing in standings)
    if not names:
        return {"replicas": {"used": used, "left_out": len(standings) - used}}
    return {
        "replicas": [
            {"name": one.name, "used": one.is_used, "lag_seconds": one.lag_seconds, "reason": one.reason}
            for one in standings
        ]
    }


def may_observe(request: HttpRequest) -> bool:
    token = settings.TIDEMARK_METRICS_TOKEN
    return has_token(request.META.get("HTTP_AUTHORIZATION", ""), token) if token else _is_local(request)


def has_token(authorization: str, token: str) -> bool:
    """Return whether an `Authorization` header is `Bearer` and the token."""
    scheme, _, given = authorization.partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token.encode())


def _is_local(request: HttpRequest) -> bool:
    try:
        address = ip_address(request.META.get("REMOTE_ADDR", ""))
    except ValueError:
        return False  # a Unix socket, which only a proxy connects to
    return address.is_loopback and not any(header in request.META for header in FORWARDED)


def _refused() -> HttpResponse:
    if settings.TIDEMARK_METRICS_TOKEN:
        hint = "the token is wrong or missing"
        return HttpResponse(
            REFUSAL.format(hint), status=401, content_type="text/plain", headers={"WWW-Authenticate": "Bearer"}
        )
    hint = "while it is not set, only clients on this machine may see them"
    return HttpResponse(REFUSAL.format(hint), status=403, content_type="text/plain")
