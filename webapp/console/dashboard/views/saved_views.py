"""Saved views of the explorer: lists them, opens one at its short address, and lets owners save and change theirs."""

from functools import wraps

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from tidegauge.state_backends.errors import UnknownNameError
from tidegauge.webapp.accounts.permissions import OutsideError, key_scope
from tidegauge.webapp.catalog import queries, readers
from tidegauge.webapp.catalog.visible import of_request
from tidegauge.webapp.console.dashboard.explorer.saved import UnanswerableError, question_to_store, summary
from tidegauge.webapp.console.dashboard.views.live import (
    View,
    ask,
    sentence,
    signed_in,
    static_page,
    unknown,
    unknown_state,
)
from tidegauge.webapp.console.saved_views import services
from tidegauge.webapp.console.saved_views.forms import SavedViewForm
from tidegauge.webapp.console.saved_views.models import SavedView
from tidegauge.webapp.console.saved_views.selectors import visible_views
from tidegauge.webapp.core.confirmation import Confirmation

PAGE_VIEWS = 50


@require_safe
@signed_in
def all_views(request):
    """All views that the user sees, or those of one state."""
    visible, state = of_request(request), request.GET.get("state", "").replace("\0", "")
    found = visible_views(request.user, visible)
    views = Paginator(found.filter(state=state) if state else found, PAGE_VIEWS).get_page(request.GET.get("page"))
    existing = set(queries.state_names())
    context = {
        "views": views,
        "rows": [(each, summary(each.question), each.state in existing) for each in views],
        "of": state,
        "shows_owners": visible.names is None,
    }
    return static_page(request, "dashboard/views.html", context)


@require_safe
@signed_in
def view(request, view_id):
    found = visible_views(request.user, of_request(request)).filter(pk=view_id).first()
    if found is None:
        return _unknown_view(request, view_id)
    if found.state in queries.state_names():
        return redirect(found.address)
    became = queries.find_former("state", found.state) if key_scope(request).is_unrestricted else None
    context = {"view": found, "is_own": found.owner_id == request.user.pk, "became": became}
    return static_page(request, "dashboard/view_gone.html", context, 410)


@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@login_required
def save(request, name, page):
    """Show the form for the question in the address; if it is valid, store the question under the name."""
    try:
        pipeline = of_request(request).pipeline_of(name)
    except (UnknownNameError, OutsideError):
        return unknown_state(request, name)
    back = reverse(f"dashboard:{page}", args=[name])
    try:
        question = question_to_store(request, page, readers.reader(readers.connection(), name).spec, pipeline)
    except UnanswerableError as error:
        messages.error(request, f"The view was not saved. {sentence(error)}")
        return redirect(f"{back}?{request.GET.urlencode()}")
    form = SavedViewForm(request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        try:
            made = services.create_view(
                owner=request.user, state=name, page=page, question=question, **form.cleaned_data
            )
        except services.SavedViewError as error:
            form.add_error("name", str(error))
        else:
            messages.success(request, f"The view {made} is saved.")
            return redirect("dashboard:view", made.pk)
    back = f"{back}?{request.GET.urlencode()}"
    context = {"form": form, "state": name, "parts": summary(question), "back": back}
    return static_page(request, "dashboard/view_form.html", context, 400 if form.errors else 200)


def own_view(view: View) -> View:
    """Call `view(request, saved)` with a view that the user owns and sees."""

    @wraps(view)
    def of_owner(request: HttpRequest, view_id: str) -> HttpResponse:
        found = visible_views(request.user, of_request(request)).filter(pk=view_id, owner_id=request.user.pk).first()
        return _unknown_view(request, view_id) if found is None else view(request, found)

    return never_cache(login_required(of_owner))


@require_http_methods(["GET", "HEAD", "POST"])
@own_view
def edit(request, saved):
    """Rename a view, share it or make it private."""
    initial = {"name": saved.name, "is_shared": saved.is_shared}
    form = SavedViewForm(request.POST if request.method == "POST" else None, initial=initial)
    if request.method == "POST" and form.is_valid():
        try:
            services.change_view(saved, **form.cleaned_data)
        except services.SavedViewError as error:
            form.add_error("name", str(error))
        else:
            messages.success(request, f"The view {form.cleaned_data['name']} is saved.")
            return redirect("dashboard:view", saved.pk)
    context = {"form": form, "view": saved, "state": saved.state, "parts": summary(saved.question)}
    back = saved.get_absolute_url()
    context |= {"back": back, "address": request.build_absolute_uri(back)}
    return static_page(request, "dashboard/view_form.html", context, 400 if form.errors else 200)


@require_POST
@own_view
def replace(request, saved):
    """Replace the question of the view by that of the address."""
    try:
        pipeline = of_request(request).pipeline_of(saved.state)
    except (UnknownNameError, OutsideError):
        return unknown_state(request, saved.state)
    spec = readers.reader(readers.connection(), saved.state).spec
    try:
        services.replace_question(saved, question_to_store(request, saved.page, spec, pipeline))
    except UnanswerableError as error:
        messages.error(request, f"The view {saved} was not changed. {sentence(error)}")
        return redirect(f"{reverse(f'dashboard:{saved.page}', args=[saved.state])}?{request.GET.urlencode()}")
    messages.success(request, f"The view {saved} is replaced.")
    return redirect("dashboard:view", saved.pk)


@require_http_methods(["GET", "HEAD", "POST"])
@own_view
def delete(request, saved):
    if (asked := ask(request, _deletion(saved))) is not None:
        return asked
    services.delete_view(saved)
    messages.success(request, f"The view {saved} is deleted.")
    return redirect("dashboard:views")


def _deletion(saved: SavedView) -> Confirmation:
    others = "It is shared, so others lose it, too. " if saved.is_shared else ""
    boards = saved.tiles.values("board").distinct().count()
    others += f"It leaves {boards} board{'' if boards == 1 else 's'}. " if boards else ""
    return Confirmation(
        title=f"Delete the view {saved}?",
        button="Delete",
        cancel_url=reverse("dashboard:views"),
        notes=[f"{others}Its address will no longer work. This cannot be undone; the state itself is not affected."],
        danger=True,
        seen={f"view {saved}": {"access": "shared" if saved.is_shared else "private"}},
    )


def _unknown_view(request: HttpRequest, view_id: str) -> HttpResponse:
    return unknown(request, "view", view_id, reverse("dashboard:views"))
