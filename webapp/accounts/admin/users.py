"""Users and groups, with their restrictions. Only a superuser can create or edit a superuser."""

from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, User
from django.http import HttpRequest
from unfold.admin import ModelAdmin, StackedInline
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from tidegauge.webapp.accounts.admin.forms import KeyScopeForm
from tidegauge.webapp.accounts.audit.admin import AuditedEdits
from tidegauge.webapp.accounts.models import Restriction

PERMISSION = ("content_type__app_label", "codename")

admin.site.unregister(User)
admin.site.unregister(Group)


class RestrictionForm(KeyScopeForm):
    class Meta:
        model = Restriction
        fields = ["states", "key_prefix"]


class RestrictionInline(StackedInline):
    """The form of a restriction on the page of its user or group."""

    model = Restriction
    form = RestrictionForm
    extra = 1  # one empty form, because a user or group has at most one restriction; it is not stored if left empty
    verbose_name = "restriction to states and keys"

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return True

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return _may_edit(request, obj if isinstance(obj, User) else None)

    has_change_permission = has_add_permission
    has_delete_permission = has_add_permission


def _restriction(of: dict[str, Any]) -> dict[str, Any]:
    """Return the restriction of a user or group, for the audit log."""
    found = Restriction.objects.filter(**of).first()
    return {"states": found.states, "key_prefix": found.key_prefix} if found else {}


@admin.register(User)
class UserAdmin(AuditedEdits, DjangoUserAdmin, ModelAdmin):
    form = UserChangeForm
    inlines = [RestrictionInline]
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm

    def audited(self, instance: User) -> dict[str, Any]:
        flags = ["is_active", "is_staff", "is_superuser"]
        groups = sorted(instance.groups.values_list("name", flat=True))
        held = [flag.removeprefix("is_") for flag in flags if getattr(instance, flag)]
        return {"groups": groups, "is": held, "restricted_to": _restriction({"user": instance})}

    def get_inlines(self, request: HttpRequest, obj: User | None):
        return self.inlines if obj is not None else []

    def get_readonly_fields(self, request: HttpRequest, obj: User | None = None):
        fields = super().get_readonly_fields(request, obj)
        return fields if request.user.is_superuser else [*fields, "is_superuser", "user_permissions"]

    def has_change_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        return super().has_change_permission(request, obj) and _may_edit(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        return super().has_delete_permission(request, obj) and _may_edit(request, obj)


@admin.register(Group)
class GroupAdmin(AuditedEdits, DjangoGroupAdmin, ModelAdmin):
    inlines = [RestrictionInline]

    def audited(self, instance: Group) -> dict[str, Any]:
        permissions = sorted(f"{app}.{name}" for app, name in instance.permissions.values_list(*PERMISSION))
        return {"permissions": permissions, "restricted_to": _restriction({"group": instance})}


def _may_edit(request: HttpRequest, user: User | None) -> bool:
    return user is None or request.user.is_superuser or not user.is_superuser
