"""Saved queries as stored: a row per version, which does not change any more once it is published."""

from typing import Any

from django.conf import settings
from django.core.validators import RegexValidator
from django.db import models
from django.urls import reverse

# What a published version keeps.
FIXED = {"name", "version", "description", "definition"}


class PublishedError(Exception):
    """A published version is immutable: make a new version of the query."""


def published_names() -> list[str]:
    """Return the names of the queries that are answered, in order."""
    published = SavedQuery.objects.filter(published_at__isnull=False, withdrawn_at=None)
    return sorted(set(published.values_list("name", flat=True)))


class SavedQuery(models.Model):
    """definition: parameters and reads, see definition.py. A version without `published_at` is a draft."""

    name = models.CharField(
        max_length=60,
        validators=[RegexValidator(r"^[a-z][a-z0-9_-]*\Z", "use a lower case letter, then letters, digits, - or _")],
    )
    version = models.PositiveIntegerField(editable=False)
    description = models.TextField(blank=True)
    definition = models.JSONField()
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, editable=False, related_name="saved_queries"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    published_by = models.CharField(max_length=150, blank=True, editable=False)
    published_at = models.DateTimeField(null=True, editable=False)
    withdrawn_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        ordering = ["name", "-version"]
        verbose_name = "saved query"
        verbose_name_plural = "saved queries"
        constraints = [models.UniqueConstraint(fields=["name", "version"], name="one_row_per_version")]

    def __str__(self):
        return f"{self.name} version {self.version}"

    def save(self, **options: Any) -> None:
        """Raises PublishedError for a change of what a published version is."""
        changes = set(options.get("update_fields") or FIXED)
        published = SavedQuery.objects.filter(pk=self.pk, published_at__isnull=False)
        if self.pk and changes & FIXED and published.exists():
            raise PublishedError(f"{self} is published and cannot be changed; make a new version")
        super().save(**options)

    def get_absolute_url(self) -> str:
        return reverse("lookup:saved_query_version", args=[self.name, self.version])

    @property
    def status(self) -> str:
        """draft, published or withdrawn."""
        if self.published_at is None:
            return "draft"
        return "published" if self.withdrawn_at is None else "withdrawn"
