"""Alerts in the API: those that rules have found and reported, newest first, in pages."""

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from tidegauge.webapp.accounts.permissions import key_scope
from tidegauge.webapp.api.api_view import ApiView, link_to_next
from tidegauge.webapp.api.calls import answered, call, page_of
from tidegauge.webapp.api.fields import ChoiceParameter, TextParameter
from tidegauge.webapp.api.list_cursor import ListQuery
from tidegauge.webapp.api.openapi import NEXT
from tidegauge.webapp.api.parameters import ListParameters
from tidegauge.webapp.catalog.visible import Visible
from tidegauge.webapp.notify.alerts.figures import ABOVE_LIMIT, LIMITS
from tidegauge.webapp.notify.alerts.models import Alert
from tidegauge.webapp.notify.alerts.rules import CHOICES
from tidegauge.webapp.notify.alerts.visible import alert_document, visible_alerts

STATUSES = ["open", Alert.OVER]
NARROWING = ("pipeline", "state", "status")


class AlertsParameters(ListParameters):
    pipeline = TextParameter(help_text="Alerts of this pipeline and its states; of all if absent")
    state = TextParameter(help_text="Alerts of this state; of all if absent")
    status = ChoiceParameter(STATUSES, help_text="Alerts that are open, or over; both if absent")


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


def conditions(query: ListQuery) -> dict[str, Any]:
    narrowed = dict(query.narrowed)
    status = narrowed.pop("status", "")
    wanted = {name: value for name, value in (narrowed | {"pk__lt": query.before}).items() if value}
    return wanted | ({"ended_at__isnull": status == "open"} if status else {})


class AlertsView(ApiView):
    parameters = {"GET": AlertsParameters}

    @call(
        "list_alerts", "pipelines", page_of("alerts", AlertSerializer), "A page.", headers=[NEXT],
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
        query, visible = ListQuery.read("alerts", asked, NARROWING), Visible(key_scope(request))
        limit = asked["limit"]
        found = list(visible_alerts(visible).filter(**conditions(query))[: limit + 1])
        alerts, cursor = query.page(found, limit, lambda alert: alert.pk)
        document = {"alerts": [alert_document(alert, visible) for alert in alerts], "next": cursor}
        return Response(document, headers=link_to_next(request, cursor))
