"""The web process: `granian --interface wsgi webapp.wsgi:application`.

Its connections get a statement time-out, because a reader who waits longer has gone; commands and workers, whose
statements may take their time, have none.
"""

import os

from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.db.backends.signals import connection_created

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")

application = get_wsgi_application()


def limit_statements(connection, **_):
    with connection.cursor() as cursor:
        cursor.execute(f"SET statement_timeout = {settings.TIDEMARK_STATEMENT_TIMEOUT_MS:d}")


connection_created.connect(limit_statements)
