"""The replay of dead letters in the API: a request, and what became of the last one."""

from dataclasses import asdict
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from tidegauge.state_backends.dead_letters.replay import Choice
from tidegauge.webapp.accounts.key_options import Scope
from tidegauge.webapp.accounts.permissions import REPLAY_DEAD_LETTERS, key_scope
from tidegauge.webapp.api.fields import Member
from tidegauge.webapp.api.openapi import CONDITIONAL, OF_BODIES, UNCHANGED, answers
from tidegauge.webapp.api.requests import BodySerializer
from tidegauge.webapp.api.views import ApiView, requester
from tidegauge.webapp.catalog import queries
from tidegauge.webapp.maintenance.replay import last_replay, request_replay


class ReasonField(Member, serializers.CharField):
    expected = "the `reason` of a group, which is text"

    def to_internal_value(self, data: Any) -> str:
        return data if isinstance(data, str) and "\0" not in data else self.fail("invalid")


class ReplayBody(BodySerializer):
    example = '{"reason": "n: expected int, got …"}, or {} for all'

    reason = ReasonField(required=False, allow_blank=True, help_text="the `reason` of a group; all letters if absent")


class ReplaySerializer(serializers.Serializer):
    requested_at = serializers.DateTimeField(allow_null=True, help_text="null: the audit log has no request")
    requested_by = serializers.CharField(allow_blank=True)
    letters = serializers.IntegerField(help_text="how many were requested")
    waiting = serializers.IntegerField(help_text="those that no committed batch has taken")
    replayed = serializers.IntegerField(help_text="those that are counted")
    txid = serializers.IntegerField(allow_null=True, help_text="the last batch that counted some")
    remaining = serializers.IntegerField(
        help_text="those that are dead letters still: they cannot be read now either, or their batch was taken back"
    )


describe_replay = extend_schema(
    operation_id="get_replay",
    tags=["pipelines"],
    summary="Show the last replay of dead letters",
    description="Who requested it, and what became of the letters. An API key or user with restrictions gets a 403.",
    parameters=CONDITIONAL,
    responses=answers(200, ReplaySerializer, 404, description="The replay.") | UNCHANGED,
)
describe_request = extend_schema(
    operation_id="replay_dead_letters",
    tags=["pipelines"],
    summary="Replay dead letters",
    description="Asks the driver to read the raw records of dead letters of the sources again, with the pipeline's "
    "present code, in a batch of their own; each is counted exactly once. What cannot be read now either stays a dead "
    "letter. The answer comes at once; GET shows what became of it. It is a 409 if there is nothing to replay, while a "
    "replay is under way, and if no driver runs. An API key with restrictions gets a 403; a session needs the "
    f"permission `{REPLAY_DEAD_LETTERS}`. Scope: `{Scope.MAINTAIN.value}`.",
    request=ReplayBody,
    responses=answers(202, ReplaySerializer, *(404, 409, *OF_BODIES), description="The replay, requested."),
)


class ReplayView(ApiView):
    scopes = {"POST": Scope.MAINTAIN}
    permission = REPLAY_DEAD_LETTERS

    @describe_replay
    def get(self, request: Request, name: str) -> Response:
        key_scope(request).check_unrestricted()
        return Response(_replay_document(queries.pipeline(name).name))

    @describe_request
    def post(self, request: Request, name: str) -> Response:
        key_scope(request).check_unrestricted()
        reason = ReplayBody.read(request.data).get("reason") or None
        request_replay(name=name, choice=Choice(pattern=reason), requested_by=requester(request))
        return Response(_replay_document(name), status=202)


def _replay_document(pipeline: str) -> dict[str, Any]:
    found = last_replay(pipeline)
    return asdict(found) | {"remaining": found.remaining}
