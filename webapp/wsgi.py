"""Django's handler of the web process, which `tidegauge.webapp.web` serves.

A WSGI server can serve it as well, behind a proxy that reads requests and answers for it: it has no limits of its own
for clients that send or read slowly.

Its database connections have a statement timeout, because a client that waits longer has disconnected. Commands and
workers, whose statements may take longer, have none. All web processes of a service count their metrics together.
"""

import gc
import os

from django.conf import settings
from django.core.cache import close_caches
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import reset_queries
from django.db.backends.signals import connection_created

from tidegauge.webapp.core import multiprocess

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tidegauge.webapp.settings")
# Before prometheus_client is imported.
multiprocess.share("web", settings.DATA_DIR)

application = get_wsgi_application()

# A lookup creates some thousand lists and tuples. With the default thresholds, searching them for cycles takes a tenth
# of its time. What is loaded by now is kept for the life of the process, so the collector can leave it out.
gc.freeze()
gc.set_threshold(10_000, 10, 10)

# Queries are recorded in DEBUG only, and Django's caches have nothing to close.
if not settings.DEBUG:
    request_started.disconnect(reset_queries)
    request_finished.disconnect(close_caches)


from tidegauge.webapp.core.pooler import limit_statements  # noqa: E402

connection_created.connect(limit_statements)

from tidegauge.webapp.catalog.readers import limit_backend_calls  # noqa: E402  only once Django is set up
from tidegauge.webapp.core.checks import log_warnings  # noqa: E402

limit_backend_calls()
log_warnings()
