"""What the periodic task does: look at all pipelines, and record their verdicts."""

from django.db import connection, transaction
from django.utils import timezone

from webapp.alerts.history import record_verdicts
from webapp.states import queries

LOCK = "SELECT pg_try_advisory_xact_lock(hashtextextended('tidemark alerts', 0))"


def check() -> bool:
    """Look at all pipelines, unless another worker does. Returns whether it did."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(LOCK)
            if not cursor.fetchone()[0]:
                return False
        record_verdicts(queries.pipelines(), timezone.now())
    return True
