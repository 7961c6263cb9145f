"""Audit entries: written by `audit.services.record`, never changed, deleted after TIDEGAUGE_AUDIT_KEEP_DAYS."""

from django.db import models
from django.db.models.functions import Now


class AuditEntry(models.Model):
    """One action. actor: a user's name, `API key NAME`, or `schedule`. target: kind and name, such as `state routes`.

    request_id: the id that the request has in the logs; empty if there was no request.
    """

    at = models.DateTimeField(db_default=Now(), db_index=True)
    actor = models.TextField()
    action = models.CharField(max_length=50)
    target = models.TextField()
    detail = models.JSONField(default=dict)
    request_id = models.TextField(blank=True, default="")

    class Meta:
        ordering = ["-id"]
        verbose_name_plural = "audit entries"

    def __str__(self):
        return f"{self.actor}: {self.action} {self.target}"
