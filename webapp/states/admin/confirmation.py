"""A page between an action and its deed: what will happen, row by row, and a way back."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.contrib.admin import ModelAdmin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.http import HttpRequest
from django.template.response import TemplateResponse

CONFIRMED = "confirmed"


@dataclass(frozen=True)
class Question:
    """title: what is asked. says: what happens to all. table: what happens to each. verb: on the button.

    danger: something is lost that cannot be had again. hidden: what the form sends once more. back: where `no` leads.
    """

    title: str
    verb: str
    back: str
    says: Sequence[str] = ()
    headers: Sequence[str] = ()
    rows: Sequence[Sequence[Any]] = ()
    danger: bool = False
    hidden: Sequence[tuple[str, str]] = field(default_factory=list)


def is_confirmed(request: HttpRequest) -> bool:
    return CONFIRMED in request.POST


def ask(admin: ModelAdmin, request: HttpRequest, question: Question) -> TemplateResponse:
    """Return the page. Its form posts to where the request came to, with `confirmed` beside what is hidden."""
    context = {
        **admin.admin_site.each_context(request),
        "opts": admin.opts,
        "title": question.title,
        "question": question,
        "table": {"headers": list(question.headers), "rows": [list(row) for row in question.rows]},
        "hidden": [*question.hidden, (CONFIRMED, "yes")],
    }
    return TemplateResponse(request, "admin/states/confirmation.html", context)


def selection(request: HttpRequest, keys: Sequence[Any]) -> list[tuple[str, str]]:
    """Return what an action's form sends: the action and the rows it was asked for, as they were when it was asked."""
    return [("action", request.POST["action"]), *((ACTION_CHECKBOX_NAME, str(key)) for key in keys)]
