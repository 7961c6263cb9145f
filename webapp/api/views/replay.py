"""The replay of dead letters in the API: a request, and what became of the last one."""

from functools import partial
from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from tidegauge.state_backends.dead_letters.replay import Choice
from tidegauge.webapp.accounts.key_options import Scope
from tidegauge.webapp.accounts.permissions import REPLAY_DEAD_LETTERS, key_scope
from tidegauge.webapp.api.api_view import ApiView, requester
from tidegauge.webapp.api.calls import asked, call
from tidegauge.webapp.api.fields import Member
from tidegauge.webapp.api.idempotent import idempotent, once
from tidegauge.webapp.api.openapi import ONCE
from tidegauge.webapp.api.requests import BodySerializer
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


class ReplayView(ApiView):
    scopes = {"POST": Scope.MAINTAIN}
    permission = REPLAY_DEAD_LETTERS

    @call("get_replay", "pipelines", ReplaySerializer, "The replay.")
    def get(self, request: Request, name: str) -> Response:
        """Show the last replay of dead letters.

        Who requested it, and what became of the letters. An API key or user with restrictions gets a 403.
        """
        key_scope(request).check_unrestricted()
        return Response(ReplaySerializer(last_replay(queries.pipeline(name).name)).data)

    @call(
        "replay_dead_letters", "pipelines", ReplaySerializer, "The replay, requested.", 409, 422, status=202,
        body=ReplayBody, headers=ONCE,
        examples=[asked("all", {}), asked("one group", {"reason": "n: expected int, got …"})],
    )  # fmt: skip
    def post(self, request: Request, name: str) -> Response:
        """Replay dead letters.

        Asks the driver to read the raw records of dead letters of the sources again, with the pipeline's present code,
        in a batch of their own; each is counted exactly once. A record that still cannot be read stays a dead letter.
        The answer comes at once; GET shows what became of it. It is a 409 if there is nothing to replay, while a replay
        is under way, and if no driver runs. An API key with restrictions gets a 403.
        """
        key_scope(request).check_unrestricted()
        sent = idempotent(request)
        reason = ReplayBody.read(request.data).get("reason") or None
        act = partial(request_replay, name=name, choice=Choice(pattern=reason), requested_by=requester(request))
        return once(sent, act, lambda: Response(ReplaySerializer(last_replay(name)).data, status=202))
