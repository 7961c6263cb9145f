"""Models of webhooks: the webhooks, how far each has been told, and its messages until they are delivered or dead."""

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.utils import timezone

from tidegauge.webapp.accounts.permissions import KeyScope


class Kind(models.TextChoices):
    COMMIT = "commit", "commit: a batch has changed a state"
    MAINTENANCE = "maintenance", "maintenance: a run is done or has failed"
    ALERT = "alert", "alert: a pipeline or state has a problem, as alert rules that name this webhook say"


class Webhook(models.Model):
    """An address that messages are sent to.

    states: what it is told of; empty: all pipelines and runs, and no commits. keys, key_prefix: of commits, as JSON;
    empty: all keys.
    secret, previous_secret: what the signing secrets are derived from, see signing.py; the previous one is used until
    `previous_until`.
    failures: failed attempts in a row, of any messages. rests_until: nothing is sent before this time.
    """

    name = models.CharField(max_length=100, unique=True)
    url = models.CharField("URL", max_length=2000)
    kinds = ArrayField(models.CharField(max_length=16, choices=Kind))
    states = ArrayField(models.TextField(), default=list, blank=True)
    keys = models.JSONField(default=list, blank=True)
    key_prefix = models.JSONField(default=list, blank=True)
    enabled = models.BooleanField(default=True)
    secret = models.CharField(max_length=100, editable=False)
    previous_secret = models.CharField(max_length=100, blank=True, editable=False)
    previous_until = models.DateTimeField(null=True, editable=False)
    failures = models.PositiveIntegerField(default=0, editable=False)
    rests_until = models.DateTimeField(null=True, editable=False)
    problem = models.TextField(blank=True, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, editable=False, related_name="webhooks"
    )

    # The secret of a webhook that was just created or rotated. Not a field, so that it is never stored.
    shown_once = ""

    class Meta:
        ordering = ["name"]

    def __str__(self):
        return self.name

    @property
    def scope(self) -> KeyScope:
        """Which pipelines and runs it is told of."""
        return KeyScope(frozenset(self.states))


class Cursor(models.Model):
    """How far a webhook was told about a topic, such as `commits of STATE`. position: as its reader stores it."""

    webhook = models.ForeignKey(Webhook, models.CASCADE, related_name="cursors")
    topic = models.TextField()
    position = models.JSONField()

    class Meta:
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["webhook", "topic"], name="one_cursor_per_topic")]

    def __str__(self):
        return f"{self.webhook}: {self.topic}"


class Delivery(models.Model):
    """A message for a webhook, or a mail. message_id: stays the same however often it is sent. event: its `type`.

    webhook: None for a mail, which has `mail_to` and `subject` instead. source: what it is about, if there must be only
    one message about it. body: what is signed and sent, or the text of the mail.
    attempts: since sending was last requested. log: its newest attempts, `{"at", "seconds", "status", "error"}`.
    """

    class Status(models.TextChoices):
        PENDING = "pending"
        DELIVERED = "delivered"
        DEAD = "dead"

    webhook = models.ForeignKey(Webhook, models.CASCADE, null=True, related_name="deliveries")
    mail_to = ArrayField(models.EmailField(), default=list)
    subject = models.TextField(blank=True)
    message_id = models.CharField(max_length=40, unique=True)
    event = models.CharField(max_length=40)
    source = models.TextField(null=True)  # noqa: DJ001 (NULL, because the unique constraint does not compare it)
    body = models.TextField()
    status = models.CharField(max_length=10, choices=Status, default=Status.PENDING)
    attempts = models.PositiveIntegerField(default=0)
    next_attempt_at = models.DateTimeField(default=timezone.now)
    log = models.JSONField(default=list)
    created_at = models.DateTimeField(default=timezone.now)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-id"]
        verbose_name_plural = "deliveries"
        constraints = [models.UniqueConstraint(fields=["webhook", "source"], name="one_message_per_source")]
        indexes = [
            models.Index(
                fields=["webhook", "next_attempt_at", "id"], condition=Q(status="pending"), name="pending_deliveries"
            ),
            models.Index(fields=["webhook", "status"], name="deliveries_by_status"),
            models.Index(fields=["finished_at"], name="deliveries_by_age"),
        ]

    def __str__(self):
        return f"{self.event} {self.message_id}"
