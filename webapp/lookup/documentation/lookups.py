"""Lookups, entries, histories: what a client asks and is answered, as /api/schema describes it."""

from django.conf import settings
from drf_spectacular.utils import extend_schema_serializer
from rest_framework import serializers

MAX_QUERIES, MAX_ENTRIES, MAX_VERSIONS = 20, 1_000, 1_000


class JsonValue(serializers.JSONField):
    """Any JSON value."""


class TxidField(serializers.IntegerField):
    """The number of a batch."""

    def __init__(self, **options):
        super().__init__(min_value=0, max_value=2**63 - 1, **options)


KEYS = (
    "each key a list of its parts in the order of the state's key columns, `[]` for a state without any; where there "
    "is one column, its bare value will do. Timestamps, dates and uuids are text; a timestamp needs its offset"
)
AS_OF = "answer as after this batch, at whose time ttl is reckoned; null or absent: the committed one, now"
MIN_TXID = "wait until this batch is committed, then answer"
ISOLATION = "uncommitted: results may hold rows of a batch that is still open"


def _keys() -> serializers.ListField:
    return serializers.ListField(child=JsonValue(), max_length=settings.TIDEMARK_LOOKUP_MAX_KEYS, help_text=KEYS)


def _measures() -> serializers.ListField:
    return serializers.ListField(
        child=serializers.CharField(), required=False, allow_null=True, help_text="which to answer; all if absent"
    )


def _combine() -> serializers.BooleanField:
    return serializers.BooleanField(
        required=False, help_text="fold the values of all keys into one: counts add, distinct counts are unions"
    )


def _as_of() -> TxidField:
    return TxidField(required=False, allow_null=True, help_text=AS_OF)


def _min_txid() -> TxidField:
    return TxidField(required=False, allow_null=True, help_text=MIN_TXID)


def _wait_ms() -> serializers.IntegerField:
    return serializers.IntegerField(
        required=False,
        allow_null=True,
        min_value=0,
        max_value=settings.TIDEMARK_MAX_WAIT_MS,
        help_text="wait this long for `min_txid` at most; as long as the server allows if absent",
    )


class QuerySerializer(serializers.Serializer):
    keys = _keys()
    measures = _measures()
    combine = _combine()
    as_of = _as_of()
    min_txid = _min_txid()
    wait_ms = _wait_ms()


class QueryOfStateSerializer(serializers.Serializer):
    state = serializers.CharField()
    keys = _keys()
    measures = _measures()
    combine = _combine()


class QueriesSerializer(serializers.Serializer):
    queries = serializers.ListField(
        child=QueryOfStateSerializer(), min_length=1, max_length=MAX_QUERIES, help_text="of states of one pipeline"
    )
    as_of = _as_of()
    min_txid = _min_txid()
    wait_ms = _wait_ms()


class ResultSerializer(serializers.Serializer):
    key = serializers.ListField(child=JsonValue())
    status = serializers.ChoiceField(["found", "missing", "expired"])
    value = JsonValue(allow_null=True, help_text="measure to value, or the JSON value; null unless found")


class CombinedSerializer(serializers.Serializer):
    keys = serializers.IntegerField(help_text="how many were found and folded; one asked twice folds once")
    missing = serializers.IntegerField()
    expired = serializers.IntegerField()
    value = JsonValue(help_text="measure to value, over the keys found; of none, what an empty state would give")


class AnswerSerializer(serializers.Serializer):
    state = serializers.CharField()
    isolation = serializers.ChoiceField(["committed", "uncommitted"], help_text=ISOLATION)
    results = ResultSerializer(
        many=True, required=False, help_text="one per key asked, in the order asked; absent if combined"
    )
    combined = CombinedSerializer(required=False, help_text="in place of results, if that was asked for")


class BatchOfAnswer(serializers.Serializer):
    txid = TxidField(help_text="the batch that everything here belongs to; 0 before the first")
    as_of = serializers.DateTimeField(allow_null=True, help_text="the time of that batch")


@extend_schema_serializer(component_name="StateAnswer")
class StateAnswerSerializer(BatchOfAnswer, AnswerSerializer):
    pass


@extend_schema_serializer(component_name="Answers")
class AnswersSerializer(BatchOfAnswer):
    answers = AnswerSerializer(many=True, help_text="one per query, in the order asked")


class EntrySerializer(serializers.Serializer):
    key = serializers.ListField(child=JsonValue())
    value = JsonValue(allow_null=True, help_text="measure to value, or the JSON value")
    txid = TxidField(allow_null=True, help_text="the batch that wrote it last; null where the kind keeps none")
    updated_at = serializers.DateTimeField(allow_null=True, help_text="the time of that batch")


class EntriesSerializer(BatchOfAnswer):
    state = serializers.CharField()
    isolation = serializers.ChoiceField(["committed", "uncommitted"], help_text=ISOLATION)
    complete = serializers.BooleanField(
        help_text="false where a state in Redis is too large to be searched or sorted whole"
    )
    entries = EntrySerializer(many=True)
    next = serializers.CharField(allow_null=True, help_text="the cursor of the next page; null on the last one")


class VersionSerializer(serializers.Serializer):
    txid = TxidField(allow_null=True)
    at = serializers.DateTimeField(allow_null=True, help_text="the time of that batch")
    status = serializers.ChoiceField(["found", "removed"])
    value = JsonValue(allow_null=True)


class HistorySerializer(BatchOfAnswer):
    state = serializers.CharField()
    isolation = serializers.ChoiceField(["committed", "uncommitted"], help_text=ISOLATION)
    key = serializers.ListField(child=JsonValue())
    complete = serializers.BooleanField(help_text="false where older versions are out of reach")
    versions = VersionSerializer(many=True, help_text="the newest first")
