"""The events process: `granian --interface asgi tidegauge.webapp.asgi:application`.

It does not use Django's ASGI application, which has no lifespan and keeps a request per client (see events/app.py). Its
database connections have a statement timeout, as those of the web process.
"""

import os

import django
from django.conf import settings
from django.db.backends.signals import connection_created

from tidegauge.webapp.core import multiprocess

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tidegauge.webapp.settings")
# Before prometheus_client is imported.
multiprocess.share("events", settings.DATA_DIR)
django.setup()

from tidegauge.webapp.events.app import EventsApplication  # noqa: E402  it needs django.setup()
from tidegauge.webapp.serving.health import ON_EVENTS  # noqa: E402

application = EventsApplication(ON_EVENTS)


from tidegauge.webapp.core.pooler import limit_statements  # noqa: E402

connection_created.connect(limit_statements)

from tidegauge.webapp.catalog.readers import limit_backend_calls  # noqa: E402
from tidegauge.webapp.core.checks import log_warnings  # noqa: E402

limit_backend_calls()
log_warnings()
