"""Alerts, as the API describes them: dicts, whose times are text."""

from typing import Literal, TypedDict, cast

from tidemark.client.calls import Call, Request, Steps, path

PAGE_ALERTS = 500


class AlertDocument(TypedDict):
    """What an alert rule has found. state: empty if it is about the pipeline.

    rule: empty for a restricted API key. figure: that is above a limit of the rule; empty if it is about a verdict.
    until: None while it is open.
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
    """The pages of one request, one after the other. most: how many alerts at most; None: all."""

    def __init__(self, most: int | None, **wanted: str | None) -> None:
        self._asked = {name: value for name, value in wanted.items() if value is not None}
        self._left = most
        self.ended = most == 0

    def next(self, call: Call) -> Steps[list[AlertDocument]]:
        size = PAGE_ALERTS if self._left is None else min(PAGE_ALERTS, self._left)
        document = yield from call.json(Request("GET", path("alerts"), {**self._asked, "limit": str(size)}))
        found = cast("list[AlertDocument]", document["alerts"])
        if self._left is not None:
            self._left -= len(found)
        self._asked = {"cursor": document["next"]}
        self.ended = document["next"] is None or self._left == 0
        return found
