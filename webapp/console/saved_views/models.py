"""Saved views as stored."""

from urllib.parse import urlencode

from django.conf import settings
from django.db import models
from django.urls import reverse
from django.utils.crypto import get_random_string

NAME_CHARACTERS = 80
MOST_OF_A_PERSON = 100


def new_id() -> str:
    # Random, because a number would show people how many views there are that they may not see.
    return get_random_string(10)


class Page(models.TextChoices):
    """The pages whose questions can be saved, by the names of their routes."""

    EXPLORE = "explore"
    COMPARE = "compare"


class SavedView(models.Model):
    """question: the query parameters of its page, without the position in a table. is_shared: with everyone who may
    see the whole state; otherwise only its owner sees it."""

    id = models.CharField(primary_key=True, max_length=20, default=new_id, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="saved_views")
    name = models.CharField(max_length=NAME_CHARACTERS)
    state = models.TextField()
    page = models.CharField(max_length=10, choices=Page.choices, default=Page.EXPLORE)
    question = models.JSONField(default=dict)
    is_shared = models.BooleanField("shared", default=False)
    created_at = models.DateTimeField(auto_now_add=True)
    changed_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name", "id"]
        default_permissions = ("view", "delete")
        constraints = [models.UniqueConstraint(fields=["owner", "name"], name="one_view_of_a_name")]
        indexes = [models.Index(fields=["state"], name="views_of_a_state")]

    def __str__(self):
        return self.name

    def get_absolute_url(self) -> str:
        return reverse("dashboard:view", args=[self.pk])

    @property
    def address(self) -> str:
        """The address of the page that answers its question."""
        parts = urlencode({**self.question, "view": self.pk}, doseq=True)
        return f"{reverse(f'dashboard:{self.page}', args=[self.state])}?{parts}"
