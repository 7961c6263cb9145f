"""Reads of more than single keys: pages of entries, groups, files, and what a key was over time."""

from contextlib import nullcontext
from functools import partial
from typing import Any

from django.http import HttpResponseBase
from django.urls import reverse
from rest_framework.exceptions import NotAcceptable
from rest_framework.request import Request
from rest_framework.response import Response

from tidegauge.webapp.accounts.concurrency import SEARCHES, client_of
from tidegauge.webapp.accounts.permissions import key_scope
from tidegauge.webapp.api.answers import (
    EntriesSerializer,
    GroupsSerializer,
    HistorySerializer,
    KeySeriesSerializer,
    WindowsSerializer,
)
from tidegauge.webapp.api.api_view import ApiView, FileView, link_to_next
from tidegauge.webapp.api.calls import answered, asked, call
from tidegauge.webapp.api.entries import EntriesPage, page
from tidegauge.webapp.api.export import FORMATS, stream
from tidegauge.webapp.api.groups import groups
from tidegauge.webapp.api.history import history
from tidegauge.webapp.api.openapi import NEXT, NOT_YET, NOT_YET_OR_IN_TIME, answer_header
from tidegauge.webapp.api.parameters import (
    EntriesParameters,
    ExportParameters,
    GroupsParameters,
    HistoryParameters,
    KeySeriesParameters,
    parameters_in,
    parameters_in_body,
    read_range,
)
from tidegauge.webapp.api.rendering import conditional
from tidegauge.webapp.api.requests import AskedWindowsSerializer
from tidegauge.webapp.api.series import key_series
from tidegauge.webapp.api.windows import windows
from tidegauge.webapp.core.pools import SEARCH_CURSOR, SEARCHED

EXPORT_HEADERS = [
    answer_header("Tidegauge-Epoch", "The ledger's epoch", [200]),
    answer_header("Tidegauge-Txid", "The batch that the file shows", [200], int),
    answer_header("Content-Disposition", "A name for the file", [200]),
]

ENDS = "2026-11-20T07:09:00+00:00"
WINDOWS = {
    "state": "views_by_minute",
    "epoch": "8a1f0c2e9b7d4653",
    "txid": 42,
    "batch_time": "2026-11-20T07:09:00.123456+00:00",
    "isolation": "committed",
    "windows": [
        {
            "window": "1h",
            "from": "2026-11-20T06:09:00+00:00",
            "to": "2026-11-20T07:09:00+00:00",
            "granularity": "minute",
        },
        {
            "window": "24h",
            "from": "2026-11-19T07:00:00+00:00",
            "to": "2026-11-20T07:09:00+00:00",
            "granularity": "hour",
        },
    ],
    "results": [
        {"key": ["/home"], "values": [{"views": 61}, {"views": 1283}]},
        {"key": ["/cart"], "values": [{"views": 0}, {"views": 17}]},
    ],
}


class EntriesView(ApiView):
    parameters = {"GET": EntriesParameters}

    def perform_content_negotiation(self, request: Request, force: bool = False) -> Any:
        try:
            return super().perform_content_negotiation(request, force)
        except NotAcceptable:
            export = reverse("lookup:export", kwargs=self.kwargs)
            raise NotAcceptable(f"pages of entries are JSON; for {', '.join(FORMATS)} GET {export}") from None

    @call(
        "list_entries", "states", EntriesSerializer, "A page.", 409, 410, headers=[NEXT], instead={409: NOT_YET}
    )  # fmt: skip
    def get(self, request: Request, name: str) -> HttpResponseBase:
        """List entries of a state, in pages.

        Entries that have not expired: all, those of a range or prefix of keys, those that meet conditions, or the
        largest by a measure. Send `next` of a page as `cursor` to get the following one; it is null on the last page.
        No key is repeated or left out.

        In key order each page is of the batch that is committed then, unless `at_txid` says otherwise; with `order_by`
        all pages are of the batch of the first one. If that batch is no longer available, the answer is a 410: start
        again without `cursor`. A page with `where` or `search` looks at 50,000 keys at most, so it may have fewer
        entries than `limit`, or none, and still a `next`. To read a whole range at once, use `export`.
        """
        found = self._page(request, name, parameters_in(request.query_params))
        return Response(found.document, headers=link_to_next(request, found.next))

    @call(
        "filter_entries", "states", EntriesSerializer, "A page.", 409, 410, body=EntriesParameters,
        is_conditional=False, instead={409: NOT_YET},
    )  # fmt: skip
    def post(self, request: Request, name: str) -> HttpResponseBase:
        """List entries of a state, by conditions in the body.

        What `GET /states/{name}/entries` does, for conditions that are too long for an address: its parameters are the
        members of the body. Send `next` of a page as the member `cursor`.
        """
        return Response(self._page(request, name, parameters_in_body(EntriesParameters, request.data)).document)

    def _page(self, request: Request, name: str, parameters: dict[str, Any]) -> EntriesPage:
        scope = key_scope(request)
        scope.check_state(name)
        asked = EntriesParameters.read(parameters)
        is_search = not SEARCHED.isdisjoint(asked) or asked.get("cursor", "").startswith(SEARCH_CURSOR)
        with SEARCHES.held(client_of(request)) if is_search else nullcontext():
            return page(name, asked, scope)


class GroupsView(ApiView):
    parameters = {"GET": GroupsParameters}

    @call("group_entries", "states", GroupsSerializer, "The groups.", 409, 410, instead={409: NOT_YET})
    def get(self, request: Request, name: str) -> Response:
        """Fold entries of a state by key columns.

        The entries that have not expired, or those of a range or that meet conditions, folded into one for each value
        of the key columns `by`. Each measure is folded as its aggregator does: counts add, a mean is that of all
        events, distinct counts are unions, quantiles merge. A state of JSON values cannot be folded.

        All of the range is read, so it may have 50,000 keys (`TIDEGAUGE_GROUP_MAX_KEYS`), and a tenth of that if a
        measure is folded outside the database, as sketches are; beyond, the answer is a 400, `range_too_large`.
        """
        return self._groups(request, name, parameters_in(request.query_params))

    @call(
        "filter_groups", "states", GroupsSerializer, "The groups.", 409, 410, body=GroupsParameters,
        is_conditional=False, instead={409: NOT_YET},
        examples=[asked("by airport", {"by": "origin", "where": ["flights>1000"], "order_by": "-flights"})],
    )  # fmt: skip
    def post(self, request: Request, name: str) -> Response:
        """Fold entries of a state by key columns, by conditions in the body.

        What `GET /states/{name}/groups` does, for conditions that are too long for an address: its parameters are the
        members of the body.
        """
        return self._groups(request, name, parameters_in_body(GroupsParameters, request.data))

    def _groups(self, request: Request, name: str, parameters: dict[str, Any]) -> Response:
        scope = key_scope(request)
        scope.check_state(name)
        asked = GroupsParameters.read(parameters)
        with SEARCHES.held(client_of(request)):
            return Response(groups(name, asked, scope))


class WindowsView(ApiView):
    @call(
        "fold_windows", "states", WindowsSerializer, "One result per key asked.", 409, 410,
        body=AskedWindowsSerializer, is_conditional=True, instead={409: NOT_YET_OR_IN_TIME},
        examples=[
            asked("two windows", {"keys": [["/home"], ["/cart"]], "windows": ["1h", "24h"]}),
            answered("two windows", WINDOWS),
        ],
    )  # fmt: skip
    def post(self, request: Request, name: str) -> Response:
        """Fold keys of a state over trailing windows.

        For states with tiles: the events of the last hour, 24 hours or 7 days before `to`, for each key, folded from
        tiles by the measures' aggregators: counts add, distinct counts are unions. Keys have all parts but the tile.
        All windows and keys are from one committed batch; `min_txid` waits until that one is committed. `windows` says
        which events each window covers: both ends are moved back to the start of a tile, which is coarser for earlier
        time. The values are exact for that interval.

        A window that begins before the oldest tiles that are kept is a 410, `tiles_gone`. At most
        $TIDEGAUGE_LOOKUP_MAX_KEYS keys and 20 windows, over 50,000 tiles (`TIDEGAUGE_GROUP_MAX_KEYS`), and a tenth of
        that if a measure is folded outside the database; beyond, the answer is a 400, `range_too_large`.
        """
        scope = key_scope(request)
        scope.check_state(name)
        asked = AskedWindowsSerializer.read(request.data)
        with SEARCHES.held(client_of(request)):
            response = Response(windows(name, asked, scope))
        response.add_post_render_callback(partial(conditional, request))
        return response


class ExportView(FileView):
    formats = tuple(FORMATS)
    parameters = {"GET": ExportParameters}

    @call("export_entries", "states", None, "The file.", 409, 410, 501, headers=EXPORT_HEADERS, instead={409: NOT_YET})
    def get(self, request: Request, name: str) -> HttpResponseBase:
        """Export entries of a state as a file.

        Sends all entries that have not expired, or those of a range, in key order and from one batch, whose number is
        in the header `Tidegauge-Txid`. Key columns come first, then measures. The header `Accept` or the parameter
        `format` chooses CSV (with the names of the columns in the first row; a null is an empty field), JSON lines
        (numbers have all digits) or Arrow's IPC stream.

        The size has no limit. The file is sent while it is read: an error in the middle ends the transfer without the
        end of chunked transfer encoding, which HTTP clients report as an incomplete answer. A client that reads nothing
        for a minute, or too slowly, is disconnected. An API key may have a few exports under way; one more is a 429.
        """
        scope = key_scope(request)
        scope.check_state(name)
        asked = ExportParameters.read(parameters_in(request.query_params))
        form, only_head = request.accepted_renderer.format, request.method == "HEAD"
        return stream(name, asked, form, scope, client=client_of(request), only_head=only_head)


class HistoryView(ApiView):
    parameters = {"GET": HistoryParameters}

    @call("get_history", "states", HistorySerializer, "A page.", headers=[NEXT])
    def get(self, request: Request, name: str) -> Response:
        """List the versions of a key, newest first, in pages.

        Each value that the key has had, with the batch that wrote it and the time of that batch, as far back as the
        state's changelog is kept; of a state without a changelog the last one or two. `complete` is false if there were
        older ones. Send `next` of a page as `cursor`, with the same key, to get the following one; it is null on the
        last page.
        """
        scope = key_scope(request)
        scope.check_state(name)
        document, cursor = history(name, HistoryParameters.read(request.query_params.dict()), scope)
        return Response(document, headers=link_to_next(request, cursor))


class KeySeriesView(ApiView):
    parameters = {"GET": KeySeriesParameters}

    @call("get_key_series", "states", KeySeriesSerializer, "The series.")
    def get(self, request: Request, name: str) -> Response:
        """Show the values of a key over time.

        One number for each measure and time, from the changelog: of the versions in one step of time the last one. A
        value holds until the next time: the first one is that of the range's beginning, the last one that of its end,
        or of now. Without a changelog there are the last one or two versions. Members of a measure that has several,
        such as quantiles, are named `measure.member`.
        """
        scope = key_scope(request)
        scope.check_state(name)
        asked = KeySeriesParameters.read(request.query_params.dict())
        return Response(key_series(name, asked, read_range(asked), scope))
