"""What `POST /tokens` takes and answers: see webapp/accounts/tokens.py."""

from typing import Any

from drf_spectacular.utils import extend_schema_serializer
from rest_framework import serializers

from tidegauge.webapp.accounts.issuing import DEFAULT_SECONDS, LEAST_SECONDS, MOST_SECONDS, IssuedToken
from tidegauge.webapp.api.fields import KeyPart, MeasuresField, Member, NumberField, TextParameter
from tidegauge.webapp.api.requests import BodySerializer

MAX_SUB, MAX_STATES, MAX_RATE = 200, 100, 2**31 - 1


class NamesField(MeasuresField):
    expected = f"a list of up to {MAX_STATES} names"

    def to_internal_value(self, data: Any) -> list[str]:
        names = super().to_internal_value(data)
        if len(names) > MAX_STATES or any(not name or "\0" in name for name in names):
            self.fail("invalid")
        return names


class KeyPrefixField(Member, serializers.ListField):
    child = KeyPart()
    expected = "a list of strings, numbers and booleans"

    def to_internal_value(self, data: Any) -> list[Any]:
        if not isinstance(data, list) or not all(isinstance(part, str | int | float | bool) for part in data):
            self.fail("invalid")
        return data


class SubField(TextParameter):
    expected = f"text of at most {MAX_SUB} characters"

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str) or len(data) > MAX_SUB:
            self.fail("invalid")
        return str(super().to_internal_value(data))


@extend_schema_serializer(component_name="Token")
class TokenBody(BodySerializer):
    example = '{"states": ["totals"], "lifetime_seconds": 600}'

    states = NamesField(required=False, help_text="the states it is restricted to; those of the API key if absent")
    key_prefix = KeyPrefixField(
        required=False, help_text="the leading key parts it is restricted to; those of the API key if absent"
    )
    queries = NamesField(
        required=False, help_text="the saved queries that are all it may run; those of the API key if absent"
    )
    rate = NumberField(1, MAX_RATE, required=False, help_text="requests per minute, within those of the API key")
    burst = NumberField(1, MAX_RATE, required=False, help_text="how many of them at once; those of a minute if absent")
    lifetime_seconds = NumberField(
        LEAST_SECONDS, MOST_SECONDS, required=False, help_text=f"how long it is valid; {DEFAULT_SECONDS} if absent"
    )
    sub = SubField(
        help_text="your own name for the user it is for; the tokens of a user share their rate. Do not send a secret"
    )


class TokenSerializer(serializers.Serializer):
    id = serializers.CharField(help_text="to revoke it; the token has it as `jti`")
    token = serializers.CharField(help_text="send it as `Authorization: Bearer ..`")
    token_type = serializers.ChoiceField(["Bearer"])
    expires_at = serializers.DateTimeField(help_text="not after the API key")
    states = serializers.ListField(child=serializers.CharField(), help_text="empty: all")
    key_prefix = serializers.ListField(child=KeyPart(), help_text="empty: all keys")
    queries = serializers.ListField(child=serializers.CharField(), help_text="empty: no such restriction")
    rate = serializers.IntegerField(allow_null=True, help_text="null: that of the API key")
    burst = serializers.IntegerField(allow_null=True)
    sub = serializers.CharField(allow_blank=True)


def token_document(issued: IssuedToken) -> dict[str, Any]:
    token = issued.token
    restrictions = {
        name: getattr(token, name) for name in ("id", "states", "key_prefix", "queries", "rate", "burst", "sub")
    }
    return {"token": issued.text, "token_type": "Bearer", "expires_at": token.expires_at, **restrictions}
