import threading

from django.db import connection, connections, transaction

from tests.webapp.configuration.conftest import HOOK, apply
from tidegauge.webapp.configuration import services

WAITING = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


def test_an_apply_waits_until_another_one_has_ended(lasting):
    """Otherwise both would find no webhook of the name, and the second one would fail at its unique name."""
    found = []

    def second():
        try:
            found.extend(apply({"webhooks": {"ops": HOOK}}).changes)
        finally:
            connections.close_all()

    other = threading.Thread(target=second)
    with transaction.atomic():
        apply({"webhooks": {"ops": HOOK}})
        other.start()
        with connection.cursor() as cursor:
            while not cursor.execute(WAITING).fetchone()[0]:
                assert other.is_alive()
    other.join(10)

    assert (other.is_alive(), found) == (False, [])
    assert services.export()["webhooks"] == {"ops": HOOK}
