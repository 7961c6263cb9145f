"""Alerts as the API describes them: dicts whose times are text."""

from typing import Literal, TypedDict, cast

from tidegauge.client.calls import Call, Request, Steps, path
from tidegauge.client.paging import Paging

PAGE_ALERTS = 500


class AlertDocument(TypedDict):
    """What an alert rule has found. state: empty if the alert is about the pipeline.

    rule: empty for a restricted API key. figure: the one that exceeds a limit of the rule; empty if the alert is about
    a verdict. until: None while it is open.
    """

    id: int
    status: Literal["open", "over"]
    pipeline: str
    state: str
    rule: str
    verdict: str
    figure: str
    reason: str
    since: str
    until: str | None


class AlertPages:
    """The pages of one request, in order. most: the maximum number of alerts; None: all."""

    def __init__(self, most: int | None, **wanted: str | None) -> None:
        asked = {name: value for name, value in wanted.items() if value is not None}
        self._paging = Paging(asked, most, PAGE_ALERTS)

    @property
    def ended(self) -> bool:
        return self._paging.ended

    def next(self, call: Call) -> Steps[list[AlertDocument]]:
        document = yield from call.json(Request("GET", path("alerts"), self._paging.parameters))
        found = cast("list[AlertDocument]", document["alerts"])
        self._paging.passed(len(found), document["next"])
        return found
