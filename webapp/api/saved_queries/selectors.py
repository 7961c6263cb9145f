"""Which versions of saved queries there are, and whether the states still have what they read."""

from collections.abc import Sequence

import psycopg
from django.db.models import QuerySet
from rest_framework.exceptions import APIException

from tidegauge.state_backends import StateSpec
from tidegauge.webapp.accounts.permissions import KeyScope
from tidegauge.webapp.api.saved_queries.definition import Definition
from tidegauge.webapp.api.saved_queries.models import SavedQuery
from tidegauge.webapp.catalog import readers
from tidegauge.webapp.catalog.visible import Visible

PIPELINES = "SELECT name, pipeline FROM tidegauge.state WHERE name = ANY(%s) ORDER BY name"


class UnknownQueryError(APIException):
    """There is no published query of this name, or no such version of it."""

    status_code = 404


class WithdrawnQueryError(APIException):
    """The version was withdrawn: ask a newer one."""

    status_code = 410


class BrokenQueryError(APIException):
    """A state of the query was renamed, retired, or lacks a measure: publish a new version."""

    status_code = 410

    def __init__(self, query: SavedQuery, found: Sequence[str], scope: KeyScope) -> None:
        # What was found may name states outside of the key scope.
        why = f": {'; '.join(found)}" if scope.is_unrestricted else ""
        super().__init__(f"{query} cannot be answered any more{why}; publish a new version")


def published(scope: KeyScope) -> list[SavedQuery]:
    """Return the newest published version of each query that an API key may run, and whose states it sees."""
    versions = _published().filter(withdrawn_at=None).order_by("name", "-version").distinct("name")
    visible = Visible(scope.of_reads)
    return [query for query in versions if scope.sees_query(query.name) and _is_seen(query, visible)]


def find(name: str, version: int | None, scope: KeyScope) -> SavedQuery:
    """Return a version, by default the newest published one.

    Raises UnknownQueryError, also for a query of states outside the API key's scope, and WithdrawnQueryError.
    """
    visible = Visible(scope.of_reads)
    named = _published().filter(name=name) if scope.sees_query(name) else []
    versions = [query for query in named if _is_seen(query, visible)]
    if version is not None:
        versions = [query for query in versions if query.version == version]
    if not versions:
        what = f"query {name!r}" if version is None else f"version {version} of query {name!r}"
        raise UnknownQueryError(f"{what} does not exist; GET /api/v1/saved-queries lists those that do")
    found = next((query for query in versions if query.withdrawn_at is None), None)
    if found is None:
        raise WithdrawnQueryError(
            f"{versions[0]} was withdrawn; GET /api/v1/saved-queries lists those that are answered"
        )
    return found


def problems_of(definition: Definition) -> list[str]:
    """Return what keeps a query from being answered now; empty if nothing does."""
    return readers.read(lambda conn: _problems(conn, definition))


def _problems(conn: psycopg.Connection, definition: Definition) -> list[str]:
    def spec_of(state: str) -> StateSpec:
        return readers.reader(conn, state).spec

    found = definition.problems(spec_of)
    if found or len(definition.states) == 1:
        return found
    pipelines: dict[str, str] = dict(conn.execute(PIPELINES, [definition.states]).fetchall())
    if len(set(pipelines.values())) > 1:
        of = ", ".join(f"state {state!r} is of pipeline {pipelines[state]!r}" for state in pipelines)
        return [f"{of}, and pipelines have no batch in common; read states of one pipeline"]
    return []


def _published() -> QuerySet[SavedQuery]:
    return SavedQuery.objects.filter(published_at__isnull=False).order_by("-version")


def _is_seen(query: SavedQuery, visible: Visible) -> bool:
    reads: Sequence[dict[str, str]] = query.definition["reads"]
    return all(visible.sees(read["state"]) for read in reads)
