"""API keys as stored: a visible prefix to look the key up, and a digest of the secret."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.utils import timezone

from tidegauge.webapp.accounts.key_options import Scope


@dataclass(frozen=True, slots=True)
class Token:
    """The restrictions of a short-lived token. sub: the user of the program that asked for it; may be empty.

    rate: requests per minute within the limit of the API key; None: only the API key's limit applies.
    """

    id: str
    sub: str
    states: list[str]
    key_prefix: list[Any]
    queries: list[str]
    rate: int | None
    burst: int | None
    expires_at: datetime

    @property
    def caller(self) -> str:
        """Identifies the requests that share one rate limit."""
        return f"sub:{self.sub}" if self.sub else self.id


class Restriction(models.Model):
    """Restricts a user, or the members of a group, to states and keys, as a key scope restricts an API key.

    A person without a restriction sees everything. A person with several sees only what all of them allow.
    """

    user = models.OneToOneField(settings.AUTH_USER_MODEL, models.CASCADE, null=True, blank=True)
    group = models.OneToOneField(Group, models.CASCADE, null=True, blank=True)
    states = ArrayField(models.TextField(), default=list, blank=True)
    key_prefix = models.JSONField(default=list, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=models.Q(user=None) ^ models.Q(group=None), name="restriction_of_a_user_or_a_group"
            )
        ]

    def __str__(self):
        return f"restriction of {self.user or self.group}"


class OidcIdentity(models.Model):
    """A user's identity at an identity provider, which never gives a subject to another person."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, models.CASCADE)
    issuer = models.TextField()
    subject = models.TextField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["issuer", "subject"], name="one_user_of_an_identity")]

    def __str__(self):
        return f"{self.subject} at {self.issuer}"


class ApiKey(models.Model):
    """`tmk_<prefix>_<secret>` authenticates requests with its `scopes` until it expires or is revoked.

    states, key_prefix: the key scope, by name and by leading key parts; empty: no restriction.
    queries: the names of saved queries; if any, it may only run these; empty: no restriction.
    rate: requests per minute, None for the rate in the settings, 0 for no limit. burst: how many of them at once, None
        for the requests of one minute.
    previous_sha512: the secret before the last rotation, valid until `previous_until`.
    """

    name = models.CharField(max_length=100)
    prefix = models.CharField(max_length=16, unique=True, editable=False)
    # The secret has 256 random bits, so a fast digest is as safe as a slow password hash.
    secret_sha512 = models.BinaryField(max_length=64)
    previous_sha512 = models.BinaryField(max_length=64, null=True, editable=False)
    previous_until = models.DateTimeField(null=True, editable=False)
    scopes = ArrayField(models.CharField(max_length=16, choices=Scope))
    states = ArrayField(models.TextField(), default=list, blank=True)
    key_prefix = models.JSONField(default=list, blank=True)
    queries = ArrayField(models.TextField(), default=list, blank=True)
    rate = models.PositiveIntegerField(null=True, blank=True)
    burst = models.PositiveIntegerField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, editable=False)
    expires_at = models.DateTimeField(null=True, blank=True)
    rotated_at = models.DateTimeField(null=True, blank=True, editable=False)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)
    revoked_at = models.DateTimeField(null=True, blank=True, editable=False)

    # The secret of a key that was just created or rotated; never stored.
    shown_once = ""

    # The ids of the key's revoked tokens; set only if the key was read to check a token. See revoked_tokens.py.
    revoked_tokens: Collection[str] = ()

    # Set if a token of the key authenticated the request. This object is then a restricted copy: never save it.
    token: Token | None = None

    class Meta:
        ordering = ["-created_at"]
        verbose_name = "API key"

    def __str__(self):
        return f"{self.name} (tmk_{self.prefix}_..)"

    def allows(self, scope: str) -> bool:
        return scope in self.scopes

    @property
    def status(self) -> str:
        """active, expired or revoked."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.is_expired(timezone.now()) else "active"

    def is_expired(self, now: datetime) -> bool:
        return self.expires_at is not None and self.expires_at <= now


class RevokedToken(models.Model):
    """A token that is refused although it has not expired. expires_at: the latest time at which it can expire.

    id: begins with `prefix`, the prefix of its API key.
    """

    id = models.CharField(primary_key=True, max_length=40)
    prefix = models.CharField("API key", max_length=16)
    expires_at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["prefix"], name="revoked_tokens_of_a_key")]

    def __str__(self):
        return f"revoked token {self.id}"


class UsageHour(models.Model):
    """What an API key has used in an hour. state: empty for requests that name no state. See usage.py."""

    id = models.BigAutoField(primary_key=True)
    hour = models.DateTimeField()
    prefix = models.CharField("API key", max_length=16)
    state = models.TextField(blank=True)
    requests = models.BigIntegerField()
    keys = models.BigIntegerField("keys looked up")
    bytes = models.BigIntegerField("bytes sent")
    refusals = models.BigIntegerField()

    class Meta:
        ordering = ["-hour", "prefix", "state"]
        verbose_name_plural = "usage"
        constraints = [models.UniqueConstraint(fields=["hour", "prefix", "state"], name="one_row_per_hour_and_state")]
        indexes = [models.Index(fields=["prefix", "hour"], name="usage_of_a_key")]

    def __str__(self):
        return f"tmk_{self.prefix}_.., {self.hour:%Y-%m-%d %H}:00, {self.state or 'no state'}"
