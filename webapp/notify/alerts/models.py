"""Models of the history of verdicts, and of alerts: rules, what they have found, and silences."""

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from tidegauge.webapp.notify.webhooks.models import Webhook


class VerdictPeriod(models.Model):
    """How long a pipeline had a verdict. verdict: `well` for all good ones, because these change with each batch.

    until: when the pipeline was last checked, or the next verdict found. is_current: the last one of its pipeline.
    """

    pipeline = models.TextField()
    verdict = models.TextField()
    reason = models.TextField()
    began_at = models.DateTimeField()
    until = models.DateTimeField()
    is_current = models.BooleanField(default=True)

    class Meta:
        default_permissions = ()
        ordering = ["-began_at", "-id"]
        constraints = [
            models.UniqueConstraint(fields=["pipeline"], condition=Q(is_current=True), name="one_current_verdict")
        ]
        indexes = [models.Index(fields=["pipeline", "-began_at"], name="verdicts_of_a_pipeline")]

    def __str__(self):
        return f"{self.pipeline} {self.verdict}"


class HealthSample(models.Model):
    """All pipelines together at one periodic check. lag_seconds: the worst lag, None if no lag is known.

    rows, dead_letters: totals since each pipeline began.
    """

    at = models.DateTimeField(primary_key=True)
    lag_seconds = models.FloatField(null=True)
    rows = models.BigIntegerField()
    dead_letters = models.BigIntegerField()

    class Meta:
        default_permissions = ()
        ordering = ["at"]

    def __str__(self):
        return self.at.isoformat()


class LastCheck(models.Model):
    """One row: when the scheduled task last checked the pipelines."""

    at = models.DateTimeField()

    class Meta:
        default_permissions = ()

    def __str__(self):
        return self.at.isoformat()


class AlertRule(models.Model):
    """Which verdicts on pipelines and states, and which figures of pipelines, are reported, and where.

    pipelines, states: what it is about; a state stands for itself and its pipeline. Both empty: all.
    lag_seconds to batch_seconds: limits of figures, see figures.py. None: no limit.
    after_seconds: how long a verdict or a figure above its limit has to last. mail_to, webhooks: where messages go.
    sent_at: when its last message was made.
    """

    name = models.CharField(max_length=100, unique=True)
    pipelines = ArrayField(models.TextField(), default=list, blank=True)
    states = ArrayField(models.TextField(), default=list, blank=True)
    verdicts = ArrayField(models.TextField(), default=list, blank=True)
    lag_seconds = models.FloatField(null=True, blank=True)
    pending_input = models.PositiveBigIntegerField(null=True, blank=True)
    rejected_share = models.FloatField(null=True, blank=True)
    event_age_seconds = models.FloatField(null=True, blank=True)
    batch_gap_seconds = models.FloatField(null=True, blank=True)
    batch_seconds = models.FloatField(null=True, blank=True)
    after_seconds = models.PositiveIntegerField(default=60)
    mail_to = ArrayField(models.EmailField(), default=list, blank=True)
    webhooks = models.ManyToManyField(Webhook, blank=True, related_name="alert_rules")
    enabled = models.BooleanField(default=True)
    sent_at = models.DateTimeField(null=True, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]

    def __str__(self):
        return self.name

    @property
    def source(self) -> str:
        """What the sources of its messages in the outbox begin with."""
        return f"rule {self.pk} "


class Alert(models.Model):
    """A verdict that a rule is about, or a figure above its limit, from when it was found until it was over.

    state: empty if it is about the pipeline. figure: the name of its limit, empty if it is about a verdict.
    well_since: since when it has not been found; None while it is.
    told: the worst verdict that a message has named, `over` after the message of its end, empty before the first.
    """

    OVER = "over"

    rule = models.ForeignKey(AlertRule, models.CASCADE, related_name="alerts")
    pipeline = models.TextField()
    state = models.TextField(blank=True)
    figure = models.TextField(blank=True, db_default="")
    verdict = models.TextField()
    reason = models.TextField()
    began_at = models.DateTimeField()
    well_since = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    told = models.TextField(blank=True)

    class Meta:
        ordering = ["-began_at", "-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["rule", "pipeline", "state", "figure"],
                condition=Q(ended_at=None),
                name="one_open_alert_of_a_rule",
            )
        ]
        indexes = [models.Index(fields=["pipeline", "-began_at"], name="alerts_of_a_pipeline")]

    def __str__(self):
        return f"{self.state or self.pipeline} {self.verdict}"


class Acknowledgement(models.Model):
    """Somebody takes care of a pipeline's problem: no messages about it until it is worse or over. See acknowledged.py.

    verdict: what was acknowledged.
    """

    pipeline = models.TextField(primary_key=True)
    verdict = models.TextField()
    by = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="acknowledgements")
    at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["pipeline"]

    def __str__(self):
        return f"{self.pipeline} {self.verdict}"


class Silence(models.Model):
    """A time in which no messages are sent: about one pipeline, or all if empty; of one rule, or all if None."""

    pipeline = models.TextField(blank=True)
    rule = models.ForeignKey(AlertRule, models.CASCADE, null=True, blank=True, related_name="silences")
    until = models.DateTimeField()
    reason = models.CharField(max_length=200, blank=True)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, editable=False, related_name="silences"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-until"]

    def __str__(self):
        return f"of {self.pipeline or 'all pipelines'} until {self.until:%Y-%m-%d %H:%M %Z}"

    @property
    def about(self) -> str:
        """What it is about, as the audit log names it."""
        return f"pipeline {self.pipeline}" if self.pipeline else "all pipelines"
