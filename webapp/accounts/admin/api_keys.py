"""API keys, which are created, shown once, rotated and revoked, but not edited."""

from typing import Any, cast

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.models import User
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.cache import add_never_cache_headers
from django.utils.safestring import SafeString
from unfold.admin import ModelAdmin
from unfold.decorators import action, display
from unfold.enums import ActionVariant

from tidegauge.webapp.accounts import queries, revoked_tokens, services, usage
from tidegauge.webapp.accounts.admin.forms import ApiKeyForm, RevokeTokenForm, RotateForm
from tidegauge.webapp.accounts.models import ApiKey, UsageHour
from tidegauge.webapp.accounts.revocation import revocation
from tidegauge.webapp.core.admin_pages import ask, link_to_list, selection

LIST = "admin:api_keys_apikey_changelist"
# Colours by status.
STATUSES = {"active": "success", "expired": "warning", "revoked": "danger"}

DIGESTS = ("secret_sha512", "previous_sha512")

ROTATED = "The key gets a new secret, which is shown once. Its name, scopes and limits stay the same."
REVOCATION = "Requests with this token will be refused, and its event streams end. This cannot be undone."


class StatusFilter(admin.SimpleListFilter):
    title = "status"
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin) -> list[tuple[str, str]]:
        return [(status, status) for status in STATUSES]

    def queryset(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> QuerySet[ApiKey]:
        revoked, expired = Q(revoked_at__isnull=False), Q(expires_at__lte=timezone.now())
        by_status = {
            "active": ~revoked & (Q(expires_at=None) | ~expired),
            "expired": ~revoked & expired,
            "revoked": revoked,
        }
        return queryset.filter(by_status.get(self.value() or "", Q()))


@admin.register(ApiKey)
class ApiKeyAdmin(ModelAdmin):
    list_display = ["name", "key", "has_scopes", "confined_to", "limit", "status", "expires_at", "last_used_at"]
    list_filter = [StatusFilter, "last_used_at", "created_by"]
    list_fullwidth = True
    search_fields = ["name", "prefix", "states"]
    actions = ["revoke_selected"]
    actions_detail = ["rotate", "revoke", "revoke_token"]
    form = ApiKeyForm
    fields = ["name", "scopes", "states", "key_prefix", "queries", "rate", "burst", "expires_at"]

    def get_fields(self, request: HttpRequest, obj: ApiKey | None = None):
        if obj is None:
            return self.fields
        options = ["key", "status", "has_scopes", "confined_to", "limit", "expires_at"]
        dates = ["created_at", "created_by", "last_used_at", "rotated_at", "previous_until", "revoked_at"]
        return ["name", *options, *dates, "last_day", "last_month"]

    def get_form(self, request: HttpRequest, obj: ApiKey | None = None, change: bool = False, **kwargs: Any):
        form = super().get_form(request, obj, change=change, **kwargs)
        form.giver = request.user  # safe, because the class is made for each request
        return form

    def save_model(self, request: HttpRequest, obj: ApiKey, form: forms.ModelForm, change: bool) -> None:
        created, obj.shown_once = services.create_api_key(created_by=_user(request), **form.cleaned_data)
        obj.pk, obj.prefix = created.pk, created.prefix

    def response_add(self, request: HttpRequest, obj: ApiKey, post_url_continue=None) -> HttpResponse:
        return self._show_once(request, obj, "New API key")

    @action(description="Rotate", url_path="rotate", permissions=["rotate"], icon="autorenew")
    def rotate(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask how long the old secret stays valid, then show the new one."""
        key, form = self._key(request, object_id), RotateForm(request.POST or None)
        if request.method != "POST" or not form.is_valid():
            return self._confirm(request, f"Rotate {key}", "Rotate", [key], form=form, says=ROTATED)
        try:
            key.shown_once = services.rotate_api_key(key, form.cleaned_data["grace"], by=_user(request))
        except (services.KeyRevokedError, services.ScopeNotGivenError) as error:
            messages.error(request, str(error))
            return HttpResponseRedirect(reverse(LIST))
        return self._show_once(request, key, "Rotated API key")

    @action(description="Revoke", url_path="revoke", permissions=["revoke"], icon="block", variant=ActionVariant.DANGER)
    def revoke(self, request: HttpRequest, object_id: str) -> HttpResponse:
        key = self._key(request, object_id)
        asked = ask(self, request, revocation([key], cancel_url=reverse(LIST)))
        if asked is None:
            self._revoke(request, [key])
        return asked or HttpResponseRedirect(reverse(LIST))

    @action(description="Revoke a token", url_path="revoke-token", permissions=["revoke"], icon="token")
    def revoke_token(self, request: HttpRequest, object_id: str) -> HttpResponse:
        key, form = self._key(request, object_id), RevokeTokenForm(request.POST or None)
        if request.method == "POST" and form.is_valid():
            token_id = revoked_tokens.id_of(form.cleaned_data["token"].strip())
            try:
                revoked_tokens.revoke_token(token_id, by=_user(request), of=key)
            except (revoked_tokens.UnknownTokenError, revoked_tokens.TooManyRevokedError) as error:
                form.add_error("token", str(error))
            else:
                messages.success(request, f"token {token_id} is revoked")
                return HttpResponseRedirect(reverse(LIST))
        return self._confirm(request, f"Revoke a token of {key}", "Revoke", [key], form=form, says=REVOCATION)

    @admin.action(description="Revoke", permissions=["revoke"])
    def revoke_selected(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> HttpResponse | None:
        keys = list(queryset)
        chosen = selection(request, [key.pk for key in keys])
        asked = ask(self, request, revocation(keys, cancel_url=reverse(LIST), hidden=chosen))
        if asked is None:
            self._revoke(request, keys)
        return asked

    def _revoke(self, request: HttpRequest, keys: list[ApiKey]) -> None:
        for key in keys:
            services.revoke_api_key(key, by=_user(request))
            messages.success(request, f"{key} is revoked")

    def _key(self, request: HttpRequest, object_id: str) -> ApiKey:
        key = self.get_object(request, object_id)
        if key is None:
            raise Http404
        return key

    def _confirm(self, request: HttpRequest, title: str, verb: str, keys: list[ApiKey], **more: Any) -> HttpResponse:
        context = {"title": title, "verb": verb, "keys": keys, "opts": self.opts, "list": reverse(LIST), **more}
        context = self.admin_site.each_context(request) | context
        return TemplateResponse(request, "admin/api_keys/apikey/confirm.html", context)

    def _show_once(self, request: HttpRequest, key: ApiKey, title: str) -> HttpResponse:
        # Rendered in this response, because a redirect would have to store the secret until the next request.
        context = {**self.admin_site.each_context(request), "title": title, "key": key, "opts": self.opts}
        response = TemplateResponse(request, "admin/api_keys/apikey/created.html", context)
        add_never_cache_headers(response)
        return response

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        # Refused, because filters in the address such as `?secret_sha512__gt=` could find out a digest step by step.
        return not lookup.startswith(DIGESTS) and super().lookup_allowed(lookup, value, request)

    def has_rotate_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        # Not the permission to revoke, because the new secret is shown.
        return request.user.has_perms(["api_keys.change_apikey", "api_keys.add_apikey"])

    def has_revoke_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return request.user.has_perm("api_keys.change_apikey")

    def has_change_permission(self, request: HttpRequest, obj: ApiKey | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: ApiKey | None = None) -> bool:
        return False

    @display(description="Key")
    def key(self, key):
        return f"tmk_{key.prefix}_.."

    @display(description="Scopes", label=True)
    def has_scopes(self, key):
        return ", ".join(key.scopes)

    @display(description="Access to")
    def confined_to(self, key):
        return queries.describe_key_scope(key) or "all states"

    @display(description="Rate limit", ordering="rate")
    def limit(self, key):
        return queries.describe_limit(key)

    @display(description="Status", label=STATUSES)
    def status(self, key):
        return key.status

    @display(description="Last 24 hours")
    def last_day(self, key):
        return _used(key, 24)

    @display(description="Last 30 days")
    def last_month(self, key):
        return _used(key, 30 * 24)


def _used(key: ApiKey, hours: int) -> SafeString:
    """Return a link to the usage of the key in the last hours, with its sums as text."""
    sums = usage.totals(usage.since(hours, prefix=key.prefix))
    text = "{requests:,} requests, {keys:,} keys looked up, {bytes:,} bytes, {refusals:,} refusals".format(**sums)
    return link_to_list(UsageHour, text, prefix=key.prefix)


def _user(request: HttpRequest) -> User:
    return cast(User, request.user)
