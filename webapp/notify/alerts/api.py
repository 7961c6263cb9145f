"""Alerts in the API: those that rules have found and reported, newest first, in pages."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from django.core import signing
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from tidegauge.webapp.accounts.permissions import key_scope
from tidegauge.webapp.api.api_view import ApiView, link_to_next
from tidegauge.webapp.api.calls import answered, call
from tidegauge.webapp.api.entries import MALFORMED, InvalidCursorError, check_same_request
from tidegauge.webapp.api.fields import ChoiceParameter, NumberParameter, TextParameter
from tidegauge.webapp.api.openapi import NEXT
from tidegauge.webapp.api.requests import MAX_LIST, RequestSerializer
from tidegauge.webapp.catalog.visible import Visible
from tidegauge.webapp.notify.alerts.figures import ABOVE_LIMIT, LIMITS
from tidegauge.webapp.notify.alerts.models import Alert
from tidegauge.webapp.notify.alerts.rules import CHOICES
from tidegauge.webapp.notify.alerts.visible import alert_document, visible_alerts

DEFAULT_LIMIT = 50
STATUSES = ["open", Alert.OVER]
SIGNER = signing.Signer(salt="tidegauge.webapp.notify.alerts.api", sep=".")


class AlertsParameters(RequestSerializer):
    pipeline = TextParameter(help_text="Alerts of this pipeline and its states; of all if absent")
    state = TextParameter(help_text="Alerts of this state; of all if absent")
    status = ChoiceParameter(STATUSES, help_text="Alerts that are open, or over; both if absent")
    limit = NumberParameter(1, MAX_LIST, required=False, help_text=f"At most this many; {DEFAULT_LIMIT} if absent")
    cursor = TextParameter(help_text="`next` of the page before. It contains all parameters; only `limit` may differ")


class AlertSerializer(serializers.Serializer):
    id = serializers.IntegerField()
    status = serializers.ChoiceField(STATUSES)
    pipeline = serializers.CharField()
    state = serializers.CharField(allow_blank=True, help_text="empty if the alert is about the pipeline")
    rule = serializers.CharField(allow_blank=True, help_text="the rule that found it; empty for a restricted caller")
    verdict = serializers.ChoiceField([*CHOICES, *ABOVE_LIMIT])
    figure = serializers.CharField(
        allow_blank=True,
        help_text=f"the figure above a limit of the rule: {', '.join(f'`{name}`' for name in LIMITS)}; empty if the "
        "alert is about a verdict",
    )
    reason = serializers.CharField(help_text="the reason in words; also says if the figure is unknown now")
    since = serializers.DateTimeField(help_text="when the problem was found")
    until = serializers.DateTimeField(allow_null=True, help_text="when it was over; null while it is open")


class AlertsSerializer(serializers.Serializer):
    alerts = AlertSerializer(many=True)
    next = serializers.CharField(allow_null=True, help_text="the cursor of the next page; null on the last one")


EXAMPLE = {
    "id": 17,
    "status": "open",
    "pipeline": "flights",
    "state": "",
    "rule": "ops",
    "verdict": "lag above limit",
    "figure": "lag_seconds",
    "reason": "its oldest input has waited for 1,312 s, more than 300 s",
    "since": "2026-11-23T10:00:00.123456+00:00",
    "until": None,
}


@dataclass(frozen=True)
class AlertsQuery:
    """Empty: all. before: the last alert of the page before; None: the first page. A cursor is this, as signed text."""

    pipeline: str = ""
    state: str = ""
    status: str = ""
    before: int | None = None

    @classmethod
    def of(cls, asked: Mapping[str, Any]) -> "AlertsQuery":
        """asked: what `AlertsParameters` read. Raises InvalidCursorError."""
        given = {name: asked[name] for name in ("pipeline", "state", "status") if name in asked}
        if "cursor" not in asked:
            return cls(**given)
        try:
            kept = SIGNER.unsign_object(asked["cursor"])
        except signing.BadSignature:
            raise InvalidCursorError(MALFORMED) from None
        check_same_request(kept, given)
        return cls(**kept)

    def after(self, alert: Alert) -> str:
        """Return the cursor of the page after this alert."""
        return SIGNER.sign_object(asdict(self) | {"before": alert.pk})

    def conditions(self) -> dict[str, Any]:
        wanted: dict[str, Any] = {"pipeline": self.pipeline, "state": self.state, "pk__lt": self.before}
        wanted = {name: value for name, value in wanted.items() if value}
        return wanted | ({"ended_at__isnull": self.status == "open"} if self.status else {})


class AlertsView(ApiView):
    parameters = {"GET": AlertsParameters}

    @call(
        "list_alerts", "pipelines", AlertsSerializer, "A page.", headers=[NEXT],
        examples=[answered("one alert", {"alerts": [EXAMPLE], "next": None})],
    )  # fmt: skip
    def get(self, request: Request) -> Response:
        """List the alerts, newest first, in pages.

        What the alert rules have found and told of, open and over, as messages named it; past ones are deleted after
        $TIDEGAUGE_KEEP_DAYS days. An alert that has not lasted for as long as its rule says, or is silenced before a
        message named it, is not listed. Send `next` of a page as `cursor` to get the following one; it is null on the
        last page.
        """
        asked = AlertsParameters.read(request.query_params.dict())
        query, visible = AlertsQuery.of(asked), Visible(key_scope(request))
        limit = asked.get("limit", DEFAULT_LIMIT)
        found = list(visible_alerts(visible).filter(**query.conditions())[: limit + 1])
        cursor = query.after(found[limit - 1]) if len(found) > limit else None
        document = {"alerts": [alert_document(alert, visible) for alert in found[:limit]], "next": cursor}
        return Response(document, headers=link_to_next(request, cursor))
