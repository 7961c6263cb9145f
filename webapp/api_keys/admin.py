"""API keys in the admin: made, shown once, revoked. Beside them the people, in the admin's own clothes."""

from typing import cast

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.admin import GroupAdmin as BareGroupAdmin
from django.contrib.auth.admin import UserAdmin as BareUserAdmin
from django.contrib.auth.models import Group, User
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.cache import add_never_cache_headers
from unfold.admin import ModelAdmin
from unfold.decorators import display
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget

from webapp.api_keys import services
from webapp.api_keys.models import ApiKey, Scope

admin.site.unregister(User)
admin.site.unregister(Group)


class ApiKeyForm(forms.ModelForm):
    scopes = forms.MultipleChoiceField(
        choices=Scope,
        initial=[Scope.READ],
        widget=UnfoldAdminCheckboxSelectMultipleWidget,
        help_text="what the key is good for",
    )

    class Meta:
        model = ApiKey
        fields = ["name", "scopes"]


@admin.register(ApiKey)
class ApiKeyAdmin(ModelAdmin):
    list_display = ["name", "key", "has_scopes", "status", "created_at", "created_by", "last_used_at"]
    list_filter = ["revoked_at"]
    search_fields = ["name", "prefix"]
    actions = ["revoke"]
    form = ApiKeyForm
    fields = ["name", "scopes"]

    def get_fields(self, request: HttpRequest, obj: ApiKey | None = None):
        shown = ["key", "status", "created_at", "created_by", "last_used_at", "revoked_at"]
        return [*self.fields, *(shown if obj else [])]

    def save_model(self, request: HttpRequest, obj: ApiKey, form: forms.ModelForm, change: bool) -> None:
        made, obj.shown_once = services.create_api_key(obj.name, obj.scopes, created_by=cast(User, request.user))
        obj.pk, obj.prefix = made.pk, made.prefix

    def response_add(self, request: HttpRequest, obj: ApiKey, post_url_continue=None) -> HttpResponse:
        # Rendered here and now: a redirect would have to keep the secret somewhere until the next request.
        context = {**self.admin_site.each_context(request), "title": "New API key", "key": obj, "opts": self.opts}
        response = TemplateResponse(request, "admin/api_keys/apikey/created.html", context)
        add_never_cache_headers(response)
        return response

    @admin.action(description="Revoke", permissions=["revoke"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> None:
        for key in queryset:
            services.revoke_api_key(key)
            messages.success(request, f"{key} is revoked")

    def has_revoke_permission(self, request: HttpRequest) -> bool:
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

    @display(description="Status", label={"in force": "success", "revoked": "danger"})
    def status(self, key):
        return "revoked" if key.revoked_at else "in force"


@admin.register(User)
class UserAdmin(BareUserAdmin, ModelAdmin):
    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm


@admin.register(Group)
class GroupAdmin(BareGroupAdmin, ModelAdmin):
    pass
