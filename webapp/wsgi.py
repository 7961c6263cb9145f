"""The web process: `granian --interface wsgi webapp.wsgi:application`.

Its connections get a statement time-out, because a reader who waits longer has gone; commands and workers, whose
statements may take their time, have none. Its figures are counted together with those of its siblings.
"""

import gc
import os

from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.db.backends.signals import connection_created

from webapp.core import metrics

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")
# Before any module makes a metric.
metrics.share("web", settings.DATA_DIR)

application = get_wsgi_application()

# A lookup's keys are a thousand lists and tuples that end with it, and looking through them for cycles each time takes
# a tenth of its time. What is loaded by now stays, so nobody need look through that either.
gc.freeze()
gc.set_threshold(10_000, 10, 10)


def limit_statements(connection, **_):
    with connection.cursor() as cursor:
        cursor.execute(f"SET statement_timeout = {settings.TIDEMARK_STATEMENT_TIMEOUT_MS:d}")


connection_created.connect(limit_statements)

from webapp.states.readers import limit_backend_calls  # noqa: E402  only once Django is set up

limit_backend_calls()
