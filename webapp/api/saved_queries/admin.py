"""Saved queries in the admin: written as drafts, tried, published, withdrawn."""

import json
from typing import Any, cast

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.admin import ModelAdmin
from unfold.decorators import action, display
from unfold.enums import ActionVariant
from unfold.widgets import UnfoldAdminTextareaWidget

from tidegauge.webapp.accounts.audit.admin import AuditedEdits
from tidegauge.webapp.api.saved_queries import services
from tidegauge.webapp.api.saved_queries.definition import Definition
from tidegauge.webapp.api.saved_queries.models import SavedQuery
from tidegauge.webapp.api.saved_queries.parameters import DefinitionError
from tidegauge.webapp.api.saved_queries.selectors import problems_of
from tidegauge.webapp.core.admin_pages import confirmation_page, link_to_audit
from tidegauge.webapp.core.confirmation import Confirmation, is_confirmed

STATUSES = {"draft": "info", "published": "success", "withdrawn": "warning"}
EXAMPLE = {
    "parameters": {"carrier": {"type": "text", "description": "IATA code"}, "least": {"type": "bigint", "default": 0}},
    "reads": [
        {
            "state": "flights_by_carrier",
            "where": ["carrier={carrier}", "flights>={least}"],
            "measures": ["flights"],
            "order_by": "-flights",
            "limit": 10,
        }
    ],
}


class DefinitionEncoder(json.JSONEncoder):
    """Writes a definition over several lines."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options | {"indent": 2, "ensure_ascii": False, "sort_keys": True})


class SavedQueryForm(forms.ModelForm):
    definition = forms.JSONField(
        encoder=DefinitionEncoder,
        initial=EXAMPLE,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 24, "style": "font-family: monospace", "spellcheck": "false"}),
        help_text="parameters and reads, as JSON; docs/saved-queries.md describes them",
    )

    class Meta:
        model = SavedQuery
        fields = ["name", "description", "definition"]
        widgets = {"description": UnfoldAdminTextareaWidget(attrs={"rows": 3})}
        help_texts = {
            "name": "part of its address, /api/v1/saved-queries/NAME; a name that exists gets a new version",
            "description": "what it answers, for those who call it; part of its OpenAPI document",
        }

    def clean_definition(self) -> Any:
        document = self.cleaned_data["definition"]
        try:
            found = problems_of(Definition.parse(document))
        except DefinitionError as error:
            raise forms.ValidationError(str(error)) from error
        if found:
            raise forms.ValidationError(found)
        return document


@admin.register(SavedQuery)
class SavedQueryAdmin(AuditedEdits, ModelAdmin):
    form = SavedQueryForm
    list_display = ["name", "version", "status", "problems", "states", "created_by", "published_at", "published_by"]
    list_display_links = ["name", "version"]
    list_filter = ["created_by", "published_at", "withdrawn_at"]
    list_fullwidth = True
    search_fields = ["name", "description"]
    view_on_site = False  # a draft has no address yet
    actions_detail = ["publish", "withdraw", "new_version"]

    def get_fields(self, request: HttpRequest, obj: SavedQuery | None = None) -> list[str]:
        edited = ["name", "description", "definition"]
        if obj is None:
            return edited
        shown = ["name", "version", "status", "problems", "address", "openapi", "description", "definition"]
        return [*shown, "created_by", "created_at", "published_by", "published_at", "withdrawn_at", "audit"]

    def get_readonly_fields(self, request: HttpRequest, obj: SavedQuery | None = None) -> list[str]:
        edited = {"description", "definition"} if obj is None or obj.status == "draft" else set()
        names = {"name"} if obj is None else set()
        return [field for field in self.get_fields(request, obj) if field not in edited | names]

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """Start from another version, for `?from=<id>`."""
        start = request.GET.get("from", "")
        found = SavedQuery.objects.filter(pk=int(start)).first() if start.isascii() and start.isdecimal() else None
        if found is None:
            return {}
        return {"name": found.name, "description": found.description, "definition": found.definition}

    def save_model(self, request: HttpRequest, obj: SavedQuery, form: forms.ModelForm, change: bool) -> None:
        if change:
            obj.save()
            return
        made = services.create_version(
            obj.name, obj.definition, description=obj.description, by=cast(User, request.user)
        )
        obj.pk, obj.version = made.pk, made.version

    @action(description="Publish", url_path="publish", permissions=["publish"], icon="publish")
    def publish(self, request: HttpRequest, object_id: str) -> HttpResponse:
        query = self._query(request, object_id)
        notes = [
            "Clients can run it from then on. It cannot be changed any more: a correction is a new version.",
            f"It answers at /api/v1/saved-queries/{query.name}, in place of an earlier version, which keeps its own "
            "address.",
        ]
        return self._act(request, query, "Publish", services.publish, notes)

    @action(
        description="Withdraw",
        url_path="withdraw",
        permissions=["withdraw"],
        icon="block",
        variant=ActionVariant.DANGER,
    )
    def withdraw(self, request: HttpRequest, object_id: str) -> HttpResponse:
        query = self._query(request, object_id)
        notes = [
            "Requests for this version will be refused. This cannot be undone; it can be published as a new version."
        ]
        return self._act(request, query, "Withdraw", services.withdraw, notes, danger=True)

    @action(description="New version", url_path="new-version", permissions=["new_version"], icon="content_copy")
    def new_version(self, request: HttpRequest, object_id: str) -> HttpResponse:
        query = self._query(request, object_id)
        return HttpResponseRedirect(f"{reverse('admin:saved_queries_savedquery_add')}?from={query.pk}")

    def _act(
        self, request: HttpRequest, query: SavedQuery, title: str, act: Any, notes: list[str], *, danger: bool = False
    ) -> HttpResponse:
        address = reverse("admin:saved_queries_savedquery_change", args=[query.pk])
        if request.method != "POST" or not is_confirmed(request):
            question = Confirmation(f"{title} {query}?", title, address, notes=notes, danger=danger)
            return confirmation_page(self, request, question)
        try:
            act(query, by=request.user.get_username())
        except (services.StatusError, DefinitionError) as error:
            messages.error(request, str(error))
        else:
            messages.success(request, f"{query} is {query.status}")
        return HttpResponseRedirect(address)

    def _query(self, request: HttpRequest, object_id: str) -> SavedQuery:
        query = self.get_object(request, object_id)
        if query is None:
            raise Http404
        return query

    def has_publish_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return self._may(request, "change", object_id, "draft")

    def has_withdraw_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return self._may(request, "change", object_id, "published")

    def has_new_version_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return self._may(request, "add", object_id)

    def _may(self, request: HttpRequest, act: str, object_id: Any, status: str = "") -> bool:
        """Return whether a user may act on a version. status: the one that it must have."""
        if not request.user.has_perm(f"saved_queries.{act}_savedquery"):
            return False
        query = self.get_object(request, str(object_id)) if object_id and status else None
        return query is None or query.status == status

    def has_change_permission(self, request: HttpRequest, obj: SavedQuery | None = None) -> bool:
        return (obj is None or obj.status == "draft") and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: SavedQuery | None = None) -> bool:
        return obj is not None and self.has_change_permission(request, obj)

    @display(description="Status", label=STATUSES)
    def status(self, query: SavedQuery) -> str:
        return query.status

    @display(description="Check")
    def problems(self, query: SavedQuery) -> str:
        """What keeps it from being answered, if anything does."""
        return "; ".join(problems_of(Definition.parse(query.definition))) or "ok"

    @display(description="States")
    def states(self, query: SavedQuery) -> str:
        return ", ".join(Definition.parse(query.definition).states)

    @display(description="Address")
    def address(self, query: SavedQuery) -> SafeString:
        return format_html("<code>{}</code>", reverse("lookup:saved_query", args=[query.name]))

    @display(description="OpenAPI")
    def openapi(self, query: SavedQuery) -> SafeString | str:
        if query.status != "published":
            return "once it is published"
        address = reverse("lookup:saved_query_version_schema", args=[query.name, query.version])
        return format_html('<a class="text-link" href="{0}">{0}</a>', address)

    @display(description="Audit")
    def audit(self, query: SavedQuery) -> SafeString | None:
        return link_to_audit("query", query.name)
