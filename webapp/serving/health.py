"""The views /healthz, /readyz and /metrics, and who may see the names and figures in them.

`/healthz` reports whether the database answers. `/readyz` answers 503 only if nothing can be served. A stale state is
served and reported as stale, because it is exact as of its txid. Names and metrics need TIDEGAUGE_METRICS_TOKEN; if it
is not set, only clients on this machine may see them, except for clients behind a proxy on this machine.
"""

import hmac
from dataclasses import dataclass, replace
from datetime import datetime
from ipaddress import ip_address
from typing import Any

from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.db import DEFAULT_DB_ALIAS, Error, connection, connections
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from tidegauge.webapp.accounts.permissions import key_scope
from tidegauge.webapp.catalog import replicas
from tidegauge.webapp.catalog.pipeline_status import PipelineStatus
from tidegauge.webapp.catalog.verdicts import Verdict, verdict
from tidegauge.webapp.catalog.visible import of_request
from tidegauge.webapp.console.system_snapshot import SystemSnapshot, age, system_snapshot
from tidegauge.webapp.core import proxies
from tidegauge.webapp.core.metrics import render
from tidegauge.webapp.serving.stored_metrics import ReplicaMetrics, StoredMetrics

FORWARDED = ("HTTP_X_FORWARDED_FOR", "HTTP_FORWARDED", "HTTP_X_REAL_IP")
REFUSAL = "metrics require TIDEGAUGE_METRICS_TOKEN, as Authorization: Bearer <token>; {}\n"


@dataclass(frozen=True)
class Freshness:
    """How old a pipeline's states are. seconds: the age of the oldest uncounted input, or of the last commit.

    message: its driver's message, which may quote keys and input; empty if the verdict is not about a failure.
    """

    name: str
    status: str
    committed_txid: int
    committed_at: datetime | None
    seconds: float | None
    verdict: Verdict
    message: str = ""

    @property
    def reason(self) -> str:
        return self.verdict.reason if self.verdict.is_problem or self.verdict.is_stale else ""


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
    report = _report(pipelines, names=is_user or messages or settings.TIDEGAUGE_READYZ_NAMES, messages=messages)
    return JsonResponse(report | _replicas(names=messages))


@require_safe
@never_cache
def metrics(request: HttpRequest) -> HttpResponse:
    try:
        # The events process has no middleware that checks it. A page elsewhere may give its own name our address.
        request.get_host()
    except DisallowedHost:
        return HttpResponse("the Host header does not name this server\n", status=400, content_type="text/plain")
    if not may_observe(request):
        return _refused()
    text, content_type = render(StoredMetrics(), ReplicaMetrics())
    return HttpResponse(text, content_type=content_type)


# The views that the events process also serves, by path.
ON_EVENTS = {"/healthz": healthz, "/metrics": metrics}


def _seen(pipelines: list[Freshness], request: HttpRequest) -> list[Freshness]:
    """Return what the user may see: without other pipelines and drivers' messages, if restricted to some states."""
    visible = of_request(request)
    if visible.scope.is_unrestricted:
        return pipelines
    names = {pipeline.name for pipeline in visible.pipelines()}
    return [replace(one, message="") for one in pipelines if one.name in names]


def freshness(snapshot: SystemSnapshot) -> list[Freshness]:
    return [_freshness(one, snapshot.at) for one in snapshot.pipelines]


def _freshness(one: PipelineStatus, now: datetime) -> Freshness:
    found = verdict(one)
    message = one.message if found.name in ("failed", "retrying") else ""
    return Freshness(one.name, one.status, one.committed_txid, one.committed_at, _seconds(one, now), found, message)


def _seconds(pipeline: PipelineStatus, now: datetime) -> float | None:
    if pipeline.lag_seconds is not None and pipeline.is_driven:
        return pipeline.lag_seconds
    return None if pipeline.committed_at is None else age(pipeline.committed_at, now)


def _report(pipelines: list[Freshness], *, names: bool, messages: bool) -> dict[str, Any]:
    stale = [one for one in pipelines if one.verdict.is_stale]
    counts = {"fresh": len(pipelines) - len(stale), "stale": len(stale)}
    report: dict[str, Any] = {"status": "stale" if stale else "ready", **counts}
    report |= {"warnings": proxies.warnings()} if messages and proxies.warnings() else {}
    return report | {"pipelines": [_document(one, messages=messages) for one in pipelines]} if names else report


def _document(pipeline: Freshness, *, messages: bool) -> dict[str, Any]:
    return {
        "name": pipeline.name,
        "status": pipeline.status,
        "verdict": pipeline.verdict.name,
        "stale": pipeline.verdict.is_stale,
        "committed_txid": pipeline.committed_txid,
        "committed_at": pipeline.committed_at,
        "stale_seconds": pipeline.seconds if pipeline.verdict.is_stale else 0.0,
        "reason": f"{pipeline.reason}: {pipeline.message}" if messages and pipeline.message else pipeline.reason,
    }


def _replicas(*, names: bool) -> dict[str, Any]:
    """Return the standings of the replicas; empty if there are none."""
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
    token = settings.TIDEGAUGE_METRICS_TOKEN
    return has_token(request.META.get("HTTP_AUTHORIZATION", ""), token) if token else _is_local(request)


def has_token(authorization: str, token: str) -> bool:
    """Return whether an `Authorization` header is `Bearer` and the token."""
    scheme, _, given = authorization.partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token.encode())


def _is_local(request: HttpRequest) -> bool:
    try:
        address = ip_address(request.META.get("REMOTE_ADDR", ""))
    except ValueError:
        return False  # a Unix socket, to which only a proxy connects
    return address.is_loopback and not any(header in request.META for header in FORWARDED)


def _refused() -> HttpResponse:
    if settings.TIDEGAUGE_METRICS_TOKEN:
        hint = "the token is wrong or missing"
        return HttpResponse(
            REFUSAL.format(hint), status=401, content_type="text/plain", headers={"WWW-Authenticate": "Bearer"}
        )
    hint = "while it is not set, only clients on this machine may see them"
    return HttpResponse(REFUSAL.format(hint), status=403, content_type="text/plain")
