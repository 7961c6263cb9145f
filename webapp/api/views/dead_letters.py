"""Dead letters in the API: groups of the same reason, and letters as files, with their raw input."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import orjson
import psycopg
from django.http import HttpResponseBase
from drf_spectacular.utils import inline_serializer
from psycopg.types.json import set_json_loads
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from tidegauge.webapp.accounts.concurrency import EXPORTS, client_of
from tidegauge.webapp.accounts.key_options import Scope
from tidegauge.webapp.accounts.permissions import VIEW_DEAD_LETTERS, key_scope
from tidegauge.webapp.api.api_view import ApiView, FileView
from tidegauge.webapp.api.calls import call
from tidegauge.webapp.api.export import FORMATS, Rows, set_timeouts, streamed
from tidegauge.webapp.api.fields import ChoiceParameter, NumberParameter, TextParameter
from tidegauge.webapp.api.openapi import answer_header
from tidegauge.webapp.api.parameters import FORMAT
from tidegauge.webapp.api.requests import RequestSerializer
from tidegauge.webapp.catalog import queries, replicas
from tidegauge.webapp.catalog.dead_letters import EXPORT, EXPORTED, GROUPED_LETTERS, SOURCE, LetterFilter, letter_groups
from tidegauge.webapp.catalog.documents import LARGEST_TXID

# Letters in memory at a time: a raw record may have 2 MB.
FETCHED_LETTERS = 50


class LetterParameters(RequestSerializer):
    state = TextParameter(help_text=f"Letters that this state has rejected; `{SOURCE}`: those of the source")
    txid = NumberParameter(0, LARGEST_TXID, required=False, help_text="Letters of this batch; of all if absent")
    reason = TextParameter(help_text="Letters of the groups with this `reason`; of all if absent")


class LetterExportParameters(LetterParameters):
    format = ChoiceParameter(["csv", "ndjson"], help_text=FORMAT)
    limit = NumberParameter(1, LARGEST_TXID, required=False, help_text="At most so many letters; all if absent")


# By a function, as a serializer has an attribute `source`.
EXAMPLE = inline_serializer(
    "LetterExample",
    {
        "id": serializers.IntegerField(),
        "txid": serializers.IntegerField(help_text="the batch that it is of"),
        "source": serializers.CharField(help_text="the file, topic or table, or the state"),
        "line_number": serializers.IntegerField(allow_null=True),
        "reason": serializers.CharField(help_text="its own, whole"),
        "at": serializers.DateTimeField(),
    },
    help_text="the newest one, without its input",
)


class LetterGroupSerializer(serializers.Serializer):
    state = serializers.CharField(allow_blank=True, help_text="the state that rejected them; empty: the source")
    reason = serializers.CharField(help_text="with `…` for what differs from letter to letter")
    letters = serializers.IntegerField()
    share = serializers.FloatField(help_text="of all letters that were grouped, from 0 to 1")
    first_at = serializers.DateTimeField()
    last_at = serializers.DateTimeField()
    replayable = serializers.IntegerField(help_text="those that can be replayed")
    waiting = serializers.IntegerField(help_text="those whose replay is requested, and not committed")
    replayed = serializers.IntegerField(help_text="those that were replayed since, and are counted")
    trend = serializers.ListField(
        child=serializers.IntegerField(), help_text="letters in equal steps of the time from `since` to `until`"
    )
    example = EXAMPLE


class LetterGroupsSerializer(serializers.Serializer):
    letters = serializers.IntegerField(help_text="how many were grouped, the newest ones")
    is_whole = serializers.BooleanField(help_text="false: there are older letters, or further groups")
    since = serializers.DateTimeField(allow_null=True, help_text="the time of the oldest; null if there is none")
    until = serializers.DateTimeField(allow_null=True)
    groups = LetterGroupSerializer(many=True, help_text="the largest first")


class LetterGroupsView(ApiView):
    parameters = {"GET": LetterParameters}
    grouped_letters = f"{GROUPED_LETTERS:,}"

    @call("list_dead_letter_groups", "pipelines", LetterGroupsSerializer, "The groups.")
    def get(self, request: Request, name: str) -> Response:
        """Group the dead letters of a pipeline by reason.

        Counts the newest $grouped_letters dead letters by what rejected them and by reason; quoted text, numbers and
        times in a reason are left out. The input itself is not part of the answer. An API key or user with restrictions
        gets a 403.
        """
        key_scope(request).check_unrestricted()
        asked = LetterParameters.read(request.query_params.dict())
        found = letter_groups(queries.pipeline(name).name, _filter(asked))
        return Response(LetterGroupsSerializer(found).data)


class LettersView(FileView):
    formats = ("csv", "ndjson")
    columns = ", ".join(f"`{column}`" for column in EXPORTED)
    parameters = {"GET": LetterExportParameters}
    scopes = {"GET": Scope.DEAD_LETTERS, "HEAD": Scope.DEAD_LETTERS}
    permission = VIEW_DEAD_LETTERS

    @call(
        "export_dead_letters", "pipelines", None, "The file.", 501,
        headers=[answer_header("Content-Disposition", "A name for the file", [200])],
    )  # fmt: skip
    def get(self, request: Request, name: str) -> HttpResponseBase:
        """Export dead letters of a pipeline as a file.

        Sends the letters of committed batches, newest first, with their line and raw record; the size has no limit. The
        header `Accept` or the parameter `format` chooses CSV or JSON lines. Columns: $columns. As for the exports of
        states, an error in the middle ends the transfer, slow clients are disconnected, and an API key may have a few
        exports under way. An API key with restrictions gets a 403.
        """
        key_scope(request).check_unrestricted()
        asked = LetterExportParameters.read(request.query_params.dict())
        form, only_head = request.accepted_renderer.format, request.method == "HEAD"
        return _export(queries.pipeline(name).name, asked, form, client_of(request), only_head=only_head)


def _filter(asked: dict[str, Any]) -> LetterFilter:
    return LetterFilter(asked.get("state") or None, asked.get("txid"), asked.get("reason") or None)


def _export(
    pipeline: str, asked: dict[str, Any], file_format: str, client: str, *, only_head: bool
) -> HttpResponseBase:
    form, parameters = FORMATS[file_format], _filter(asked).parameters(pipeline) | {"limit": asked.get("limit")}
    headers = {"Content-Disposition": f'attachment; filename="{pipeline}-dead-letters.{file_format}"'}
    with ExitStack() as opening:
        opening.enter_context(EXPORTS.held(client))
        batches = replicas.own_connection(opening, lambda conn: _batches(conn, parameters))
        return streamed(form, form.write(EXPORTED, batches), opening, headers, only_head=only_head)


def _batches(conn: psycopg.Connection, parameters: dict[str, Any]) -> Iterator[Rows]:
    """Return the letters of one snapshot, in parts; the transaction ends with the connection."""
    set_timeouts(conn)
    # A record as it is stored: its numbers may have more digits than orjson writes.
    set_json_loads(orjson.Fragment, conn)
    conn.execute("BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
    cursor = conn.cursor(name="dead_letters")
    cursor.execute(EXPORT, parameters)
    return iter(lambda: cursor.fetchmany(FETCHED_LETTERS), [])
