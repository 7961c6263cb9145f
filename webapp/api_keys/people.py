"""Users and groups in the admin's own clothes. Nobody makes a superuser, or edits one, who is none."""

from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin as BareGroupAdmin
from django.contrib.auth.admin import UserAdmin as BareUserAdmin
from django.contrib.auth.models import Group, User
from django.http import HttpRequest
from unfold.admin import ModelAdmin
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from webapp.audit.edits import AuditedEdits

admin.site.unregister(User)
admin.site.unregister(Group)


@admin.register(User)
class UserAdmin(AuditedEdits, BareUserAdmin, ModelAdmin):
    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm

    def audited(self, instance: User) -> dict[str, Any]:
        marks = ["is_active", "is_staff", "is_superuser"]
        groups = sorted(instance.groups.values_list("name", flat=True))
        return {"groups": groups, "is": [mark.removeprefix("is_") for mark in marks if getattr(instance, mark)]}

    def get_readonly_fields(self, request: HttpRequest, obj: User | None = None):
        own = super().get_readonly_fields(request, obj)
        return own if request.user.is_superuser else [*own, "is_superuser", "user_permissions"]

    def has_change_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        return super().has_change_permission(request, obj) and _may_touch(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        return super().has_delete_permission(request, obj) and _may_touch(request, obj)


@admin.register(Group)
class GroupAdmin(AuditedEdits, BareGroupAdmin, ModelAdmin):
    def audited(self, instance: Group) -> dict[str, Any]:
        return {"permissions": sorted(f"{app}.{name}" for app, name in instance.permissions.values_list(*CODE))}


CODE = ("content_type__app_label", "codename")


def _may_touch(request: HttpRequest, user: User | None) -> bool:
    return user is None or request.user.is_superuser or not user.is_superuser
