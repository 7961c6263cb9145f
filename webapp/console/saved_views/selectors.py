"""The saved views that a person sees: their own, and those that others share, of states that they may see."""

from typing import Any

from django.db.models import BooleanField, ExpressionWrapper, Q, QuerySet

from tidegauge.webapp.catalog.visible import Visible
from tidegauge.webapp.console.saved_views.models import SavedView


def visible_views(user: Any, visible: Visible) -> QuerySet[SavedView]:
    """Return the views with their owners, the person's own first.

    A person restricted to a key prefix sees only their own views, because names and questions may quote any key.
    """
    own = Q(owner=user)
    found = SavedView.objects.filter(own if visible.scope.key_prefix else own | Q(is_shared=True))
    if visible.names is not None:
        found = found.filter(state__in=visible.names)
    is_own = ExpressionWrapper(own, output_field=BooleanField())
    return found.annotate(is_own=is_own).select_related("owner").order_by("-is_own", "name", "id")


def views_with(text: str, user: Any, visible: Visible) -> QuerySet[SavedView]:
    """Return the views that have every word of a text in their name or in the name of their state."""
    found = visible_views(user, visible)
    for word in text.split():
        found = found.filter(Q(name__icontains=word) | Q(state__icontains=word))
    return found
