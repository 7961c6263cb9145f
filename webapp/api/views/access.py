"""Short-lived tokens, and what API keys have used."""

from typing import cast

from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from tidegauge.webapp.accounts import usage
from tidegauge.webapp.accounts.issuing import LEAST_SECONDS, MOST_SECONDS, issue
from tidegauge.webapp.accounts.key_options import Scope
from tidegauge.webapp.accounts.models import UsageHour
from tidegauge.webapp.accounts.permissions import READ_USAGE, REVOKE_TOKENS, api_key, key_scope
from tidegauge.webapp.accounts.revoked_tokens import revoke_token
from tidegauge.webapp.api.api_view import ApiView, link_to_next
from tidegauge.webapp.api.calls import asked, call, page_of
from tidegauge.webapp.api.entries import InvalidCursorError
from tidegauge.webapp.api.list_cursor import ListQuery
from tidegauge.webapp.api.openapi import NEXT
from tidegauge.webapp.api.parameters import UsageParameters
from tidegauge.webapp.api.tokens import TokenBody, TokenSerializer

HOURS = 24
FOR_A_PAGE = {"states": ["flights_by_carrier"], "key_prefix": ["JFK"], "rate": 120, "sub": "user-17"}


class TokensView(ApiView):
    for_saved_queries = True
    scopes = {"POST": Scope.ISSUE_TOKENS}
    least_seconds, most_seconds = LEAST_SECONDS, MOST_SECONDS

    @call(
        "create_token", "access", TokenSerializer, "The token and its restrictions.", status=201, body=TokenBody,
        examples=[asked("for a page", FOR_A_PAGE)],
    )  # fmt: skip
    def post(self, request: Request) -> Response:
        """Make a short-lived token.

        For a program that must not have the API key, such as a page in a browser. A token can only read, and only what
        the API key can: restrictions in the body narrow it further, to states, a key prefix, saved queries or a rate.
        It is valid $least_seconds to $most_seconds seconds, and never longer than the API key. The server does not
        store it; its `id` revokes it.
        """
        key = api_key(request)
        if key is None:
            raise PermissionDenied("tokens are made with an API key, not with a session")
        issued = issue(key, **TokenBody.read(request.data))
        return Response(TokenSerializer(issued).data, status=201, headers={"Cache-Control": "no-store"})


class TokenView(ApiView):
    for_saved_queries = True
    scopes = {"DELETE": Scope.ISSUE_TOKENS}
    permission = REVOKE_TOKENS

    @call("revoke_token", "access", None, "The token is revoked, also if it was before.", 409, status=204)
    def delete(self, request: Request, token_id: str) -> Response:
        """Revoke a token.

        The token is refused from now on, by other processes some seconds later, and its event streams end. An API key
        revokes its own tokens.
        """
        revoke_token(token_id, by=api_key(request) or cast(User, request.user))
        return Response(status=204)


class UsageSerializer(serializers.Serializer):
    """What an API key has used of a state in an hour."""

    hour = serializers.DateTimeField(help_text="its beginning")
    key = serializers.CharField(source="prefix", help_text="the API key, by the eight characters after `tmk_`")
    state = serializers.CharField(
        allow_blank=True, help_text="empty: of no single state, or refused before it was known"
    )
    requests = serializers.IntegerField(help_text="a request for several states counts once for each")
    keys = serializers.IntegerField(help_text="keys looked up")
    bytes = serializers.IntegerField(help_text="bytes of bodies sent, compressed ones as they were sent")
    refusals = serializers.IntegerField(help_text="requests answered by a 403 or 429")


class UsageView(ApiView):
    parameters = {"GET": UsageParameters}
    read_usage = READ_USAGE

    @call("list_usage", "access", page_of("usage", UsageSerializer, "UsageList"), "A page.", headers=[NEXT])
    def get(self, request: Request) -> Response:
        """List what API keys have used, by hour and state, newest first, in pages.

        Requests, keys looked up, bytes sent and refusals. An API key gets only its own usage, because others may be of
        other teams; a session with the permission `$read_usage` gets that of all API keys. A token gets a 403, and so
        does a session without the permission. A request is counted some seconds after its answer.
        Send `next` of a page as `cursor` to get the following one; it is null on the last page.
        """
        asked = UsageParameters.read(request.query_params.dict())
        query, limit = ListQuery.read("usage", asked, ("hours", "key", "state")), asked["limit"]
        key, wanted = api_key(request), query.narrowed.get("key", "")
        if key is None:
            if not request.user.has_perm(READ_USAGE):
                raise PermissionDenied(f"you lack the permission {READ_USAGE!r}; the group admin has it")
            key_scope(request).check_unrestricted()
        elif key.token is not None:
            raise PermissionDenied("a token may not read usage; use its API key")
        elif wanted not in ("", key.prefix):
            raise PermissionDenied(f"an API key may read only its own usage, {key.prefix!r}")
        else:
            wanted = key.prefix
        hours, state = query.narrowed.get("hours", HOURS), query.narrowed.get("state", "")
        found = usage.since(hours, prefix=wanted, state=state)
        if query.before is not None:
            last = UsageHour.objects.filter(pk=query.before).first()
            if last is None:
                raise InvalidCursorError(
                    "the row after which cursor continues was deleted; start again without a cursor"
                )
            found = usage.after(found, last)
        rows, cursor = query.page(list(found[: limit + 1]), limit, lambda row: row.pk)
        document = {"usage": UsageSerializer(rows, many=True).data, "next": cursor}
        return Response(document, headers=link_to_next(request, cursor))
