"""The reference for lookups: Django with only a route and a view that runs the same statement.

It has no middleware, authentication or validation: the body's keys are the statement's parameters, and PostgreSQL's
JSON is sent unchanged. The statement is planned once per connection, as in Tidegauge.
"""

import os

import orjson
import psycopg
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.urls import path

from benchmarks.rows import SALES
from tidegauge.state_backends import StateReader
from tidegauge.webapp.core.installation import database

settings.configure(
    ALLOWED_HOSTS=["127.0.0.1"],
    DATABASES={"default": database(os.environ["DATABASE_URL"], prepare_threshold=3) | {"CONN_MAX_AGE": 600}},
    ROOT_URLCONF=__name__,
    SECRET_KEY="unused",  # noqa: S106
    USE_TZ=True,
)
application = get_wsgi_application()

STATEMENT = StateReader(None, SALES).ask([("shop",)]).statement  # type: ignore[arg-type]


def look_up(request: HttpRequest) -> HttpResponse:
    keys = [key[0] for key in orjson.loads(request.body)["keys"]]
    connection.ensure_connection()
    row = psycopg.Cursor(connection.connection).execute(STATEMENT, [keys, SALES.name]).fetchone()
    assert row is not None
    txid, _, batch_time, epoch, results, *_ = row
    answer = {"epoch": epoch, "txid": txid, "batch_time": batch_time, "state": SALES.name, "isolation": "committed"}
    body = orjson.dumps(answer | {"results": orjson.Fragment(results)})
    # With a length, because the server would otherwise send the body in chunks, which takes longer.
    return HttpResponse(body, content_type="application/json", headers={"Content-Length": str(len(body))})


urlpatterns = [path("query", look_up)]
