"""The dead letters of a pipeline: grouped by reason, of one group, or all of them; and their replay."""

from functools import partial
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required, permission_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from tidegauge.state_backends.dead_letters.replay import Choice
from tidegauge.state_backends.errors import UnknownPipelineError
from tidegauge.webapp.accounts.permissions import (
    REPLAY_DEAD_LETTERS,
    STEER_PIPELINES,
    VIEW_DEAD_LETTERS,
    key_scope,
)
from tidegauge.webapp.catalog import queries
from tidegauge.webapp.catalog.dead_letters import SOURCE, LetterFilter, LetterGroup, dead_letter_page, letter_groups
from tidegauge.webapp.console.dashboard.charts import BarChart, bar_chart
from tidegauge.webapp.console.dashboard.pasted import whole_number
from tidegauge.webapp.console.dashboard.views.live import (
    ask,
    name_link,
    page,
    pipeline_page,
    sentence,
    unknown_pipeline,
)
from tidegauge.webapp.core.confirmation import is_confirmed
from tidegauge.webapp.maintenance.confirmations import replay_confirmation
from tidegauge.webapp.maintenance.replay import (
    NotDrivenError,
    NothingToReplayError,
    ReplayUnderWayError,
    last_replay,
    replay_dead_letters,
    request_replay,
)

PAGE_LETTERS = 25

FILTERS = ("state", "txid", "reason")


def may_view_input(request: HttpRequest) -> bool:
    return bool(request.user.has_perm(VIEW_DEAD_LETTERS))


@pipeline_page
def dead_letters(request, pipeline, version):
    key_scope(request).check_unrestricted()
    asked = {part: text for part in (*FILTERS, "before") if (text := request.GET.get(part, "").replace("\0", ""))}
    filters = {part: text for part, text in asked.items() if part in FILTERS}
    chosen = LetterFilter(asked.get("state"), whole_number(asked.get("txid", "")), asked.get("reason"))
    found = dead_letter_page(pipeline, chosen, before=_position(asked.get("before", "")), limit=PAGE_LETTERS)
    # Only on the first page, because each further page would compute the same groups again.
    groups = None if "before" in asked else letter_groups(pipeline.name, chosen)
    sees = may_view_input(request)
    if groups and not sees:
        groups = groups.without_input()
    context = {
        "pipeline": pipeline,
        "may_control": request.user.has_perm(STEER_PIPELINES),
        "groups": groups,
        "rows": [_row(group, filters) for group in groups.groups] if groups else [],
        "letters": found.letters if sees else [letter.without_input() for letter in found.letters],
        "shows_records": sees,
        "replay": last_replay(pipeline.name),
        # Not with a batch chosen, because a request for a replay cannot name one.
        "may_replay": request.user.has_perm(REPLAY_DEAD_LETTERS) and "txid" not in asked,
        "asked": asked,
        "filters": filters,
        "source": SOURCE,
        "following": "{}.{}".format(*found.following) if found.following else "",
    }
    return page(request, "dashboard/dead_letters.html", version, context, asked)


@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@login_required
@permission_required(REPLAY_DEAD_LETTERS, raise_exception=True)
def replay(request, name):
    """Show which letters a replay would count, those with a `reason` or all; request it once that is confirmed."""
    key_scope(request).check_unrestricted()
    asked = request.POST if request.method == "POST" else request.GET
    reason = asked.get("reason", "").replace("\0", "") or None
    try:
        pipeline = queries.pipeline(name)
    except UnknownPipelineError:
        return unknown_pipeline(request, name)
    # Only up to the batch that the page counted, so that no letter is replayed that it did not show.
    until = (whole_number(asked.get("until", "")) if is_confirmed(request) else None) or pipeline.committed_txid
    choice = Choice(pattern=reason, until=until)
    found = replay_dead_letters(name=name, choice=choice, requested_by="", dry_run=True)
    confirmation = replay_confirmation(
        {name: found},
        [pipeline],
        cancel_url=reverse("dashboard:dead_letters", args=[name]),
        link_pipeline=partial(name_link, "pipeline"),
        hidden=[("until", str(until)), *([("reason", reason)] if reason else [])],
    )
    return ask(request, confirmation) or _request_replay(request, name, choice)


def _request_replay(request: HttpRequest, name: str, choice: Choice) -> HttpResponse:
    try:
        found = request_replay(name=name, choice=choice, requested_by=request.user.get_username())
    except (NothingToReplayError, ReplayUnderWayError, NotDrivenError) as error:
        messages.warning(request, sentence(error))
    else:
        messages.success(request, f"Replay requested: {found.letters:,} dead letters, in a batch of their own.")
    return redirect("dashboard:dead_letters", name)


def _row(group: LetterGroup, filters: dict[str, str]) -> tuple[LetterGroup, BarChart | None, dict[str, Any], float]:
    """Return a group, its trend, the filters of its page and its share in percent."""
    own = filters | {"state": group.state or SOURCE, "reason": group.reason}
    return group, bar_chart(group.trend), own, 100 * group.share


def _position(text: str) -> tuple[int, int] | None:
    txid, _, letter_id = text.partition(".")
    position = whole_number(txid), whole_number(letter_id)
    return None if position[0] is None or position[1] is None else (position[0], position[1])
