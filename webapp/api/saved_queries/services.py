"""Creates, publishes and withdraws versions of saved queries, each with an audit entry."""

from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Max
from django.utils import timezone

from tidegauge.webapp.accounts.audit.services import record
from tidegauge.webapp.api.saved_queries.definition import Definition
from tidegauge.webapp.api.saved_queries.models import SavedQuery
from tidegauge.webapp.api.saved_queries.parameters import DefinitionError
from tidegauge.webapp.api.saved_queries.selectors import problems_of


class StatusError(ValueError):
    """The version is not in the status that the act needs."""


def create_version(name: str, definition: Any, *, description: str = "", by: User | None = None) -> SavedQuery:
    """Store a draft as the next version of a query. Raises DefinitionError."""
    Definition.parse(definition)
    with transaction.atomic():
        # One version after the other: two that are made at once would have the same number.
        list(SavedQuery.objects.select_for_update().filter(name=name))
        newest = SavedQuery.objects.filter(name=name).aggregate(newest=Max("version"))["newest"] or 0
        return SavedQuery.objects.create(
            name=name, version=newest + 1, description=description, definition=definition, created_by=by
        )


def publish(query: SavedQuery, *, by: str) -> None:
    """Let clients ask a version; the newest published one answers at the address of the query.

    Raises StatusError unless it is a draft, DefinitionError naming what keeps it from being answered.
    """
    with transaction.atomic():
        held = SavedQuery.objects.select_for_update(of=("self",)).get(pk=query.pk)
        if held.status != "draft":
            raise StatusError(f"{held} is {held.status} already; make a new version")
        if found := problems_of(Definition.parse(held.definition)):
            raise DefinitionError(f"{held} cannot be answered: {'; '.join(found)}")
        held.published_at, held.published_by = timezone.now(), by
        held.save(update_fields=["published_at", "published_by"])
        record("query.publish", f"query {held.name}", by=by, version=held.version, definition=held.definition)
    query.refresh_from_db()


def withdraw(query: SavedQuery, *, by: str) -> None:
    """Refuse a published version from now on; the one before it answers again at the address of the query.

    Raises StatusError unless it is published.
    """
    with transaction.atomic():
        held = SavedQuery.objects.select_for_update(of=("self",)).get(pk=query.pk)
        if held.status != "published":
            raise StatusError(f"{held} is {held.status}; only a published version can be withdrawn")
        held.withdrawn_at = timezone.now()
        held.save(update_fields=["withdrawn_at"])
        record("query.withdraw", f"query {held.name}", by=by, version=held.version)
    query.refresh_from_db()
