"""API keys as stored: a visible prefix to find one by, and a digest in place of the secret."""

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models


class Scope(models.TextChoices):
    READ = "read", "read: look values up"
    MAINTAIN = "maintain", "maintain: compact, expire, cancel"


class ApiKey(models.Model):
    """One key. Whoever holds `tmk_<prefix>_<secret>` may do what `scopes` say until `revoked_at`."""

    name = models.CharField(max_length=100)
    prefix = models.CharField(max_length=16, unique=True, editable=False)
    # The secret has 256 random bits, so a plain digest is as safe as a slow one and costs a lookup nothing.
    secret_sha512 = models.BinaryField(max_length=64)
    scopes = ArrayField(models.CharField(max_length=16, choices=Scope))
    created_at = models.DateTimeField(auto_now_add=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, editable=False)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)
    revoked_at = models.DateTimeField(null=True, blank=True, editable=False)

    # The secret, on a key that was made just now; never stored.
    shown_once = ""

    class Meta:
        ordering = ["-created_at"]
        verbose_name = "API key"

    def __str__(self):
        return f"{self.name} (tmk_{self.prefix}_..)"

    def allows(self, scope: str) -> bool:
        return scope in self.scopes
