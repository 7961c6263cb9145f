"""The explorer of a state: questions about its keys, each at an address of its own."""

import json
from contextlib import nullcontext
from typing import Any

from django.http import HttpRequest

from state_backends import StateSpec
from state_backends.reader.bounds import orderable
from state_backends.reader.reader import Reader
from webapp.accounts.concurrency import SEARCHES, BusyError, TooManyAtOnceError, client_of
from webapp.accounts.permissions import OutsideError, key_scope
from webapp.dashboard import api_panel
from webapp.dashboard.entries import REFUSED
from webapp.dashboard.explorer.moment import UnknownMomentError, batch_of
from webapp.dashboard.explorer.question import ROWS, Question
from webapp.dashboard.explorer.table import entries_table
from webapp.dashboard.pasted import pasted_prefix
from webapp.dashboard.views.live import page, state_page
from webapp.dashboard.views.states import UNAVAILABLE
from webapp.states import readers
from webapp.states.queries import PipelineStatus
from webapp.states.visible import of_request


@state_page
def explore(request, pipeline, version, name):
    reader = readers.reader(readers.connection(), name)
    question = Question.parse(request.GET, reader.spec)
    try:
        with SEARCHES.held(client_of(request)) if question.is_search else nullcontext():
            found = _answer(request, pipeline, reader, question)
    except (*REFUSED, OutsideError, UnknownMomentError, TooManyAtOnceError, BusyError) as error:
        found = {"refusal": str(error)}
    except UNAVAILABLE:
        # No version, so that the next refresh reads the values again.
        version, found = "", {"is_unavailable": True}
    shown = {
        "pipeline": pipeline,
        "state": of_request(request).state(name),
        "question": question,
        "conditions": [*question.where, ""],
        "choices": _choices(reader.spec),
    }
    return page(request, "dashboard/explore.html", version, shown | found, question.parameters)


def _answer(request: HttpRequest, pipeline: PipelineStatus, reader: Reader, question: Question) -> dict[str, Any]:
    as_of = batch_of(question.as_of, pipeline)
    prefix = key_scope(request).check_prefix(reader.spec, pasted_prefix(question.prefix, reader.spec))
    table = entries_table(reader, question, prefix, as_of)
    as_json = json.loads(json.dumps(list(prefix), default=str))
    return {
        "table": table,
        "as_of": as_of,
        "snippets": api_panel.of_exploration(request, reader.spec, question, as_json, as_of),
    }


def _choices(spec: StateSpec) -> dict[str, Any]:
    """Return what the form offers."""
    orders = [("", "key order")]
    for name in orderable(spec):
        orders += [(f"-{name}", f"{name}, largest first"), (name, f"{name}, smallest first")]
    return {"orders": orders, "rows": ROWS, "measures": list(spec.measures), "example": next(iter(orderable(spec)), "")}
