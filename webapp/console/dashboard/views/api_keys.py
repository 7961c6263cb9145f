"""API keys: lists them, creates one and shows its secret once, and revokes one after a confirmation."""

from shlex import quote as in_shell

from django.contrib import messages
from django.contrib.auth.decorators import login_required, permission_required
from django.http import HttpRequest
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_http_methods, require_safe

from tidegauge.webapp.accounts import queries, services
from tidegauge.webapp.accounts.key_options import Scope
from tidegauge.webapp.accounts.models import ApiKey
from tidegauge.webapp.accounts.permissions import CREATE_KEYS, REVOKE_KEYS, VIEW_KEYS, key_scope
from tidegauge.webapp.accounts.revocation import revocation
from tidegauge.webapp.catalog.programs import Server
from tidegauge.webapp.console.dashboard.key_form import KeyForm
from tidegauge.webapp.console.dashboard.views.live import ask, signed_in, static_page


@require_safe
@signed_in
@permission_required(VIEW_KEYS, raise_exception=True)
def api_keys(request):
    key_scope(request).check_unrestricted()
    return static_page(request, "dashboard/keys.html", {"keys": queries.api_keys()})


@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@login_required
@permission_required([VIEW_KEYS, CREATE_KEYS], raise_exception=True)
@sensitive_variables("secret")
def create(request):
    """Show the form; if it is valid, create the key and show its secret, which no later answer contains."""
    key_scope(request).check_unrestricted()
    form = KeyForm(request.user, request.POST if request.method == "POST" else None)
    if request.method != "POST" or not form.is_valid():
        return static_page(request, "dashboard/key_form.html", {"form": form}, 400 if form.errors else 200)
    key, secret = services.create_api_key(created_by=request.user, **form.cleaned_data)
    context = {"key": key, "secret": secret, "curl": _first_request(request, key, secret)}
    return static_page(request, "dashboard/key_created.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@login_required
@permission_required([VIEW_KEYS, REVOKE_KEYS], raise_exception=True)
def revoke(request, key_id):
    """Show who uses the key; revoke it once that is confirmed."""
    key_scope(request).check_unrestricted()
    key = get_object_or_404(ApiKey, pk=key_id)
    if key.revoked_at is not None:
        messages.info(request, f"{key} is already revoked.")
        return redirect("dashboard:keys")
    if (asked := ask(request, revocation([key], cancel_url=reverse("dashboard:keys")))) is not None:
        return asked
    services.revoke_api_key(key, by=request.user)
    messages.success(request, f"{key} is revoked.")
    return redirect("dashboard:keys")


def _first_request(request: HttpRequest, key: ApiKey, secret: str) -> str:
    """Return a curl command that the key may run; empty if the key may not read."""
    server = Server(request.build_absolute_uri("/").rstrip("/"))
    if not key.allows(Scope.READ):
        return ""
    path = ["saved-queries", key.queries[0]] if key.queries else ["states", *key.states[:1]]
    return f"curl -fsS {in_shell(server.address(*path))} \\\n  -H {in_shell(f'Authorization: Bearer {secret}')}"
