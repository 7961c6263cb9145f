"""The answers that have values of states, as /api/schema describes them.

These serializers only describe, because PostgreSQL makes the JSON of values. All other answers are rendered by the
serializers that describe them (webapp/catalog/documents.py).
"""

from drf_spectacular.utils import extend_schema_serializer
from rest_framework import serializers

from tidegauge.state_backends.spec.tiles import WIDTHS
from tidegauge.webapp.api.fields import JsonValue, KeyPart
from tidegauge.webapp.catalog.documents import EPOCH, BatchNumber, Numbers, RangeOfAnswer

ISOLATION = "uncommitted: results may hold rows of a batch that is still open"


class KeyParts(serializers.ListField):
    child = KeyPart()

    def __init__(self, **options):
        super().__init__(help_text="its parts, in the order of the state's key columns", **options)


class ResultSerializer(serializers.Serializer):
    key = KeyParts()
    status = serializers.ChoiceField(["found", "missing", "expired"])
    value = JsonValue(allow_null=True, help_text="measure to value, or the JSON value; null unless found")


class CombinedSerializer(serializers.Serializer):
    keys = serializers.IntegerField(help_text="how many were found and folded; one asked twice folds once")
    missing = serializers.IntegerField()
    expired = serializers.IntegerField()
    value = JsonValue(help_text="measure to value, over the keys found; of none, what an empty state would give")


class OfState(serializers.Serializer):
    state = serializers.CharField()
    isolation = serializers.ChoiceField(["committed", "uncommitted"], help_text=ISOLATION)
    fed = serializers.BooleanField(
        required=False, help_text="false where the state, or a measure of it, stands still; absent while all is fed"
    )
    last_fed_txid = serializers.IntegerField(
        required=False, help_text="with fed=false: the last batch that fed the state, if its pipeline runs without it"
    )
    measures_last_fed = serializers.DictField(
        child=serializers.IntegerField(),
        required=False,
        help_text="with fed=false: measures that are no longer declared, and the last batch that fed each of them",
    )


class AnswerSerializer(OfState):
    results = ResultSerializer(
        many=True, required=False, help_text="one per key asked, in the order asked; absent if combined"
    )
    combined = CombinedSerializer(required=False, help_text="in place of results, if that was asked for")


class BatchOfAnswer(serializers.Serializer):
    epoch = serializers.CharField(allow_blank=True, help_text=EPOCH)
    txid = BatchNumber(help_text="the batch that everything here belongs to; 0 before the first")
    batch_time = serializers.DateTimeField(allow_null=True, help_text="the time of that batch")


@extend_schema_serializer(component_name="StateAnswer")
class StateAnswerSerializer(BatchOfAnswer, AnswerSerializer):
    pass


@extend_schema_serializer(component_name="Answers")
class AnswersSerializer(BatchOfAnswer):
    answers = AnswerSerializer(many=True, help_text="one per lookup, in the order asked")


class KeyAnswerSerializer(BatchOfAnswer, OfState):
    key = KeyParts()
    status = serializers.ChoiceField(["found"], help_text="a key that is missing or expired is a 404")
    value = JsonValue(help_text="measure to value, or the JSON value")


class EntrySerializer(serializers.Serializer):
    key = KeyParts()
    value = JsonValue(allow_null=True, help_text="measure to value, or the JSON value")
    txid = BatchNumber(allow_null=True, help_text="the batch that wrote it last; null where the kind keeps none")
    updated_at = serializers.DateTimeField(allow_null=True, help_text="the time of that batch")


class EntriesSerializer(BatchOfAnswer):
    state = serializers.CharField()
    isolation = serializers.ChoiceField(["committed", "uncommitted"], help_text=ISOLATION)
    complete = serializers.BooleanField(
        help_text="false where the page ended before it was full, because it had looked at as many keys as one may: "
        "`next` goes on. Without a `next`, the rows are outside the database and too many to search or sort all"
    )
    entries = EntrySerializer(many=True)
    next = serializers.CharField(allow_null=True, help_text="the cursor of the next page; null on the last one")


class GroupSerializer(serializers.Serializer):
    key = KeyParts()
    keys = serializers.IntegerField(help_text="how many were folded into this group")
    value = JsonValue(help_text="measure to value")


class GroupsSerializer(BatchOfAnswer):
    state = serializers.CharField()
    isolation = serializers.ChoiceField(["committed", "uncommitted"], help_text=ISOLATION)
    by = serializers.ListField(child=serializers.CharField(), help_text="the columns of each group's `key`")
    complete = serializers.BooleanField(help_text="false where there are more groups than `limit`")
    groups = GroupSerializer(many=True)


class WindowSerializer(serializers.Serializer):
    window = serializers.CharField(help_text="as in the request")
    to = serializers.DateTimeField(help_text="the end of the events that it covers, exclusive")
    granularity = serializers.ChoiceField(list(WIDTHS), help_text="the tile in use at `from`, to whose start it goes")

    def get_fields(self):
        # `from` is a keyword of Python.
        return super().get_fields() | {"from": serializers.DateTimeField(help_text="their beginning, inclusive")}


class WindowResultSerializer(serializers.Serializer):
    key = KeyParts()
    values = serializers.ListField(
        child=JsonValue(), help_text="measure to value for each window, in their order; without events an empty state's"
    )


class WindowsSerializer(BatchOfAnswer):
    state = serializers.CharField()
    isolation = serializers.ChoiceField(["committed", "uncommitted"], help_text=ISOLATION)
    windows = WindowSerializer(many=True, help_text="which events each window covers, in the order of the request")
    results = WindowResultSerializer(many=True, help_text="one per key asked, in the order asked")


class VersionSerializer(serializers.Serializer):
    txid = BatchNumber(allow_null=True)
    at = serializers.DateTimeField(allow_null=True, help_text="the time of that batch")
    status = serializers.ChoiceField(["found", "removed"])
    value = JsonValue(allow_null=True)


class HistorySerializer(BatchOfAnswer):
    state = serializers.CharField()
    isolation = serializers.ChoiceField(["committed", "uncommitted"], help_text=ISOLATION)
    key = KeyParts()
    complete = serializers.BooleanField(help_text="false where older versions are out of reach")
    versions = VersionSerializer(many=True, help_text="the newest first")
    next = serializers.CharField(allow_null=True, help_text="the cursor of the next page; null on the last one")


@extend_schema_serializer(component_name="KeySeries")
class KeySeriesSerializer(BatchOfAnswer, RangeOfAnswer):
    state = serializers.CharField()
    isolation = serializers.ChoiceField(["committed", "uncommitted"], help_text=ISOLATION)
    key = KeyParts()
    txids = serializers.ListField(child=BatchNumber(allow_null=True), help_text="the batch that wrote each value")
    series = serializers.DictField(
        child=Numbers(), help_text="by measure; null where the key did not exist, or the value is no number"
    )
