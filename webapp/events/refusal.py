"""What the web process says to who looks for events there: a stream would keep one of its few threads for ever."""

import orjson
from django.conf import settings
from django.http import HttpRequest, HttpResponse

from webapp.lookup.problems import MEDIA_TYPE, problem


def events_are_elsewhere(request: HttpRequest, rest: str = "") -> HttpResponse:
    where = settings.TIDEMARK_EVENTS_URL
    hint = f"they are at {where}{request.path}" if where else "have the proxy send /events/ there, or ask it directly"
    body = problem(421, f"events come from the events process, which this is not; {hint}")
    return HttpResponse(orjson.dumps(body), status=421, content_type=MEDIA_TYPE, headers={"Cache-Control": "no-store"})
