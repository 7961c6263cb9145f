"""The events process: `granian --interface asgi webapp.asgi:application`.

Not Django's own ASGI application, which has no lifespan and holds a request per client (see events/application.py). Its
connections get a statement time-out, as those of the web process do.
"""

import os

import django
from django.conf import settings
from django.db.backends.signals import connection_created

from webapp.core import metrics

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")
# Before any module makes a metric.
metrics.share("events", settings.DATA_DIR)
django.setup()

from webapp.events.app import EventsApplication  # noqa: E402  only once Django is set up

application = EventsApplication()


def limit_statements(connection, **_):
    with connection.cursor() as cursor:
        cursor.execute(f"SET statement_timeout = {settings.TIDEMARK_STATEMENT_TIMEOUT_MS:d}")


connection_created.connect(limit_statements)
