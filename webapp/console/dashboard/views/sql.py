"""The page for SQL over the live views."""

from collections.abc import Iterator, Sequence
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.views.decorators.http import require_http_methods
from psycopg import sql as composed

from tidegauge.webapp.accounts.concurrency import SEARCHES, BusyError, TooManyAtOnceError, client_of
from tidegauge.webapp.accounts.permissions import RUN_SQL
from tidegauge.webapp.api.export import csv_lines, without_formula
from tidegauge.webapp.catalog import queries
from tidegauge.webapp.console.dashboard.templatetags.dashboard import shortened
from tidegauge.webapp.console.dashboard.views.live import signed_in, static_page
from tidegauge.webapp.console.sql.run import (
    MOST_ROWS,
    MOST_SECONDS,
    Answer,
    SqlError,
    SqlUnavailableError,
    may_run,
    run,
)


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def sql(request: HttpRequest) -> HttpResponse:
    """Run a statement; a GET only shows the form, so that no address runs anything."""
    check_may_run(request)
    if request.method != "POST":
        return _page(request, _example(request.GET.get("state", "")))
    text = request.POST.get("statement", "").replace("\0", "")
    try:
        with SEARCHES.held(client_of(request)):
            answer = run(text, request.user)  # type: ignore[arg-type]
    except (TooManyAtOnceError, BusyError) as error:
        answered = _page(request, text, refusal=str(error.detail), status=error.status_code)
        answered["Retry-After"] = str(error.wait)
        return answered
    except SqlError as error:
        status = 503 if isinstance(error, SqlUnavailableError) else 400
        return _page(request, text, refusal=str(error), hint=getattr(error, "hint", ""), marked=_marked(text, error),
                     status=status)  # fmt: skip
    if request.POST.get("format") == "csv":
        return _csv(answer)
    return _page(request, text, answer=answer, rows=list(_rows(answer)))


def check_may_run(request: HttpRequest) -> None:
    """Raises PermissionDenied."""
    if not may_run(request):
        raise PermissionDenied(
            f"SQL needs the permission {RUN_SQL!r}, which the groups operator and admin have, and a person without a "
            "restriction, because it reads every state"
        )


def _example(state: str) -> str:
    if state not in queries.state_names():
        return ""
    query = composed.SQL("SELECT * FROM {} LIMIT 100").format(composed.Identifier(state))
    return query.as_string()


def _page(request: HttpRequest, statement: str, status: int = 200, **context: Any) -> HttpResponse:
    context |= {
        "statement": statement,
        "states": queries.state_names(),
        "most_rows": MOST_ROWS,
        "most_seconds": MOST_SECONDS,
    }
    return static_page(request, "dashboard/sql.html", context, status)


def _rows(answer: Answer) -> Iterator[SafeString]:
    """Yield the cells of each row, written here because a template takes 20 µs for each."""
    forms = ['<td class="figure">{}</td>' if is_number else "<td>{}</td>" for _, is_number in answer.columns]
    null = format_html('<span class="muted">{}</span>', "null")
    for row in answer.rows:
        cells = (
            format_html(form, null if value is None else shortened(value))
            for form, value in zip(forms, row, strict=True)
        )
        yield format_html_join("", "{}", ((cell,) for cell in cells))


def _marked(text: str, error: SqlError) -> Sequence[str]:
    """Return the text before, at and after the position of an error; empty if it has none."""
    position = getattr(error, "position", None)
    if position is None:
        return ()
    position += len(text) - len(text.lstrip())  # because it is run without the space around it
    return text[:position], text[position : position + 1] or " ", text[position + 1 :]


def _csv(answer: Answer) -> HttpResponse:
    # Numbers as they are, because a minus at the beginning of a text would be taken for a formula.
    columns: dict[str, str] = {}
    for name, is_number in answer.columns:
        unique = without_formula(name)
        while unique in columns:
            unique += "_"
        columns[unique] = "bigint" if is_number else "text"
    written = b"".join(csv_lines(columns, [answer.rows]))
    headers = {"Content-Disposition": 'attachment; filename="sql.csv"'}
    return HttpResponse(written, content_type="text/csv; charset=utf-8", headers=headers)
