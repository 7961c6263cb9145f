"""The history of verdicts, as stored."""

from django.db import models
from django.db.models import Q


class VerdictPeriod(models.Model):
    """How long a pipeline had a verdict. verdict: `running` for all that are good, as these change with each batch.

    until: when it was last looked at, or when the next verdict was found. is_current: the last one of its pipeline.
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


class LastCheck(models.Model):
    """One row: when the schedule last had the pipelines looked at."""

    at = models.DateTimeField()

    class Meta:
        default_permissions = ()

    def __str__(self):
        return self.at.isoformat()
