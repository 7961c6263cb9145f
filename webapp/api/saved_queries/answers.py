"""What the calls for saved queries answer."""

from drf_spectacular.utils import inline_serializer
from rest_framework import serializers

from tidegauge.webapp.api.answers import BatchOfAnswer, CombinedSerializer, EntrySerializer, ResultSerializer

# By a function, as a serializer has attributes of two of these names.
QUERY_PARAMETER = inline_serializer(
    "QueryParameter",
    {
        "name": serializers.CharField(),
        "type": serializers.CharField(help_text="SQL type"),
        "required": serializers.BooleanField(),
        "many": serializers.BooleanField(help_text="whether it may be given several times"),
        "description": serializers.CharField(allow_blank=True),
    },
    many=True,
)


class SavedQuerySerializer(serializers.Serializer):
    name = serializers.CharField()
    version = serializers.IntegerField(help_text="the newest published one")
    description = serializers.CharField(allow_blank=True)
    states = serializers.ListField(child=serializers.CharField())
    parameters = QUERY_PARAMETER
    published_at = serializers.DateTimeField()
    published_by = serializers.CharField(allow_blank=True, help_text="empty for a restricted API key or person")
    url = serializers.CharField(help_text="where it is run")
    openapi = serializers.CharField(help_text="where its own OpenAPI document is")


class ReadAnswerSerializer(serializers.Serializer):
    """One of `results`, `combined` and `entries` is there, as the read asks."""

    state = serializers.CharField()
    isolation = serializers.ChoiceField(["committed", "uncommitted"])
    results = ResultSerializer(many=True, required=False, help_text="of a read of keys: one per key")
    combined = CombinedSerializer(required=False, help_text="of a read that combines its keys: one value of them all")
    entries = EntrySerializer(many=True, required=False, help_text="of a read of a range")
    complete = serializers.BooleanField(
        required=False, help_text="of a read of a range: false where it ended before it was full, see `GET /entries`"
    )
    next = serializers.CharField(
        required=False, allow_null=True, help_text="the `cursor` of the next page, of a query with one read of entries"
    )


class SavedAnswerSerializer(BatchOfAnswer):
    query = serializers.CharField()
    version = serializers.IntegerField()
    answers = ReadAnswerSerializer(
        many=True, help_text="one per read, in the order of the definition, all of one batch"
    )
