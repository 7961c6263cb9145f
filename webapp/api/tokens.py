"""What `POST /tokens` takes and answers: see webapp/accounts/tokens.py."""

from typing import Any

from drf_spectacular.utils import extend_schema_serializer
from rest_framework import serializers

from tidegauge.webapp.accounts.issuing import DEFAULT_SECONDS, LEAST_SECONDS, MOST_SECONDS
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
    id = serializers.CharField(source="token.id", help_text="to revoke it; the token has it as `jti`")
    token = serializers.CharField(source="text", help_text="send it as `Authorization: Bearer ..`")
    token_type = serializers.ChoiceField(["Bearer"])
    expires_at = serializers.DateTimeField(source="token.expires_at", help_text="not after the API key")
    states = serializers.ListField(source="token.states", child=serializers.CharField(), help_text="empty: all")
    key_prefix = serializers.ListField(source="token.key_prefix", child=KeyPart(), help_text="empty: all keys")
    queries = serializers.ListField(
        source="token.queries", child=serializers.CharField(), help_text="empty: no such restriction"
    )
    rate = serializers.IntegerField(source="token.rate", allow_null=True, help_text="null: that of the API key")
    burst = serializers.IntegerField(source="token.burst", allow_null=True)
    sub = serializers.CharField(source="token.sub", allow_blank=True)
