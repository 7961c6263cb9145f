"""Boards as stored: their tiles, and the links that show them to people without an account."""

from django.conf import settings
from django.db import models
from django.urls import reverse
from django.utils import timezone

from tidegauge.webapp.console.saved_views.models import NAME_CHARACTERS, SavedView, new_id

MOST_OF_A_PERSON = 50
# Each tile is a read of its own, and all of them are read for one refresh.
MOST_TILES = 12
MOST_LINKS = 20


class Board(models.Model):
    """is_shared: with everyone who may see the whole of every state on it; otherwise only its owner sees it."""

    id = models.CharField(primary_key=True, max_length=20, default=new_id, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="boards")
    name = models.CharField(max_length=NAME_CHARACTERS)
    is_shared = models.BooleanField("shared", default=False)
    created_at = models.DateTimeField(auto_now_add=True)
    changed_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name", "id"]
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["owner", "name"], name="one_board_of_a_name")]

    def __str__(self):
        return self.name

    def get_absolute_url(self) -> str:
        return reverse("dashboard:board", args=[self.pk])


class Tile(models.Model):
    """One saved view on a board. place: its rank. is_wide: over the whole width."""

    class Form(models.TextChoices):
        CHART = "chart", "Chart or bars"
        TABLE = "table", "Table"

    board = models.ForeignKey(Board, models.CASCADE, related_name="tiles")
    view = models.ForeignKey(SavedView, models.CASCADE, related_name="tiles")
    place = models.PositiveSmallIntegerField()
    is_wide = models.BooleanField("wide", default=False)
    form = models.CharField(max_length=10, choices=Form.choices, default=Form.CHART)

    class Meta:
        ordering = ["place", "id"]
        default_permissions = ()

    def __str__(self):
        return f"{self.view} on {self.board}"


class BoardLink(models.Model):
    """Shows a board without a sign-in, as far as its owner may see it. Its address is signed (links.py).

    kind: a page of its own, or a frame for pages of other origins. revoked_at: None unless it was withdrawn.
    """

    class Kind(models.TextChoices):
        LINK = "link", "Link"
        FRAME = "frame", "Frame"

    id = models.CharField(primary_key=True, max_length=20, default=new_id, editable=False)
    board = models.ForeignKey(Board, models.CASCADE, related_name="links")
    kind = models.CharField(max_length=10, choices=Kind.choices)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-created_at", "id"]
        default_permissions = ("add", "view", "delete")
        verbose_name = "board link"

    def __str__(self):
        return f"{self.get_kind_display().lower()} to {self.board}"

    @property
    def is_open(self) -> bool:
        return self.revoked_at is None and timezone.now() < self.expires_at
