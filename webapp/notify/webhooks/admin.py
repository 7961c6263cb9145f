"""Webhooks and their deliveries in the admin: edit, send a test, rotate the secret, send again."""

import json
from datetime import datetime
from typing import Any, cast

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.cache import add_never_cache_headers
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from unfold.admin import ModelAdmin
from unfold.decorators import action, display

from tidegauge.webapp.accounts.admin.forms import RotateForm
from tidegauge.webapp.accounts.audit.admin import AuditedEdits
from tidegauge.webapp.core.admin import LongListAdmin
from tidegauge.webapp.core.admin_pages import confirmation_page, link_to, link_to_audit, link_to_list, moment
from tidegauge.webapp.core.confirmation import Confirmation
from tidegauge.webapp.notify.webhooks import services
from tidegauge.webapp.notify.webhooks.addresses import AddressError, check_url
from tidegauge.webapp.notify.webhooks.forms import WebhookForm
from tidegauge.webapp.notify.webhooks.models import Delivery, Webhook

CONDITIONS = {"ok": "success", "failing": "danger", "problem": "warning", "disabled": "warning"}
MOST_LINES = 40
STATUSES = {"pending": "info", "delivered": "success", "dead": "danger"}


@admin.register(Webhook)
class WebhookAdmin(AuditedEdits, ModelAdmin):
    form = WebhookForm
    list_display = ["name", "host", "about", "condition", "pending", "dead", "created_by"]
    list_filter = ["enabled", "created_by"]
    list_fullwidth = True
    search_fields = ["name", "url", "states"]
    actions_detail = ["send_test", "rotate"]
    warn_unsaved_form = True

    def get_fields(self, request: HttpRequest, obj: Webhook | None = None) -> list[str]:
        edited = list(WebhookForm.Meta.fields)
        if obj is None:
            return edited
        return [
            *edited,
            "condition",
            "problem",
            "pending",
            "dead",
            "created_by",
            "created_at",
            "previous_until",
            "audit",
        ]

    def get_readonly_fields(self, request: HttpRequest, obj: Webhook | None = None) -> list[str]:
        return self.get_fields(request, obj)[len(WebhookForm.Meta.fields) :]

    def save_model(self, request: HttpRequest, obj: Webhook, form: forms.ModelForm, change: bool) -> None:
        if change:
            services.update(obj)
        else:
            obj.shown_once = services.create(obj, by=cast(User, request.user))

    def response_add(self, request: HttpRequest, obj: Webhook, post_url_continue: Any = None) -> HttpResponse:
        return self._secret_page(request, obj, "Copy this secret now")

    @action(description="Send a test", url_path="test", permissions=["act"], icon="send")
    def send_test(self, request: HttpRequest, object_id: str) -> HttpResponse:
        webhook = self._webhook(request, object_id)
        if request.method != "POST":
            return self._ask(request, webhook)
        delivery = services.send_test(webhook, by=request.user.get_username())
        messages.success(request, "the test is sent within seconds; this page shows the response")
        return HttpResponseRedirect(reverse("admin:webhooks_delivery_change", args=[delivery.pk]))

    @action(description="Rotate secret", url_path="rotate", permissions=["act"], icon="autorenew")
    def rotate(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask how long messages are also signed with the old secret, then show the new one."""
        webhook, form = self._webhook(request, object_id), RotateForm(request.POST or None)
        if request.method != "POST" or not form.is_valid():
            return self._secret_page(request, webhook, f"Rotate the secret of {webhook}", form)
        webhook.shown_once = services.rotate(webhook, form.cleaned_data["grace"], by=request.user.get_username())
        return self._secret_page(request, webhook, "Copy this secret now")

    def audited(self, instance: Webhook) -> dict[str, Any]:
        # Only the host of the URL, because its path may be a secret.
        kept = {name: getattr(instance, name) for name in ("kinds", "states", "key_prefix", "keys", "enabled")}
        return {"host": self.host(instance)} | kept

    def has_act_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return request.user.has_perm("webhooks.change_webhook")

    @display(description="To")
    def host(self, webhook: Webhook) -> str:
        try:
            return check_url(webhook.url).host
        except AddressError as error:
            return str(error)

    @display(description="About", label=True)
    def about(self, webhook: Webhook) -> str:
        return ", ".join(webhook.kinds)

    @display(description="Status", label=CONDITIONS)
    def condition(self, webhook: Webhook) -> str:
        if not webhook.enabled:
            return "disabled"
        return "failing" if webhook.failures else "problem" if webhook.problem else "ok"

    @display(description="Pending")
    def pending(self, webhook: Webhook) -> SafeString:
        return _deliveries(webhook, Delivery.Status.PENDING)

    @display(description="Dead")
    def dead(self, webhook: Webhook) -> SafeString:
        return _deliveries(webhook, Delivery.Status.DEAD)

    @display(description="Audit")
    def audit(self, webhook: Webhook) -> SafeString | None:
        return link_to_audit("webhook", webhook.name)

    def _webhook(self, request: HttpRequest, object_id: str) -> Webhook:
        webhook = self.get_object(request, object_id)
        if webhook is None:
            raise Http404
        return webhook

    def _ask(self, request: HttpRequest, webhook: Webhook) -> HttpResponse:
        notes = [f"A message of the type webhook.test is sent to {self.host(webhook)}, signed like any other."]
        if not webhook.enabled:
            notes.append("The webhook is disabled, so the message waits until it is enabled.")
        address = reverse("admin:webhooks_webhook_change", args=[webhook.pk])
        question = Confirmation(f"Send a test to {webhook}?", "Send", address, notes=notes)
        return confirmation_page(self, request, question)

    def _secret_page(
        self, request: HttpRequest, webhook: Webhook, title: str, form: RotateForm | None = None
    ) -> HttpResponse:
        # Rendered in this response, because a redirect would have to store the secret until the next request.
        context = {"title": title, "webhook": webhook, "form": form, "opts": self.opts}
        context = self.admin_site.each_context(request) | context
        response = TemplateResponse(request, "admin/webhooks/webhook/secret.html", context)
        add_never_cache_headers(response)
        return response


@admin.register(Delivery)
class DeliveryAdmin(LongListAdmin):
    list_display = ["event", "to", "shown_status", "attempts", "answer", "created_at", "next_attempt"]
    list_filter = ["status", "event", "webhook"]
    list_select_related = ["webhook"]
    search_fields = ["=message_id", "subject", "mail_to"]
    actions = ["send_again"]
    fields = [
        "message_id", "event", "to", "shown_status", "attempts", "created_at", "next_attempt", "finished_at",
        "attempts_made", "message",
    ]  # fmt: skip

    @admin.action(description="Send again", permissions=["send"])
    def send_again(self, request: HttpRequest, queryset: QuerySet[Delivery]) -> None:
        count = services.send_again(Delivery.objects.filter(pk__in=queryset), by=request.user.get_username())
        messages.success(request, f"{count} messages are sent again within seconds")

    def has_send_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm("webhooks.change_webhook")

    @display(description="To", ordering="webhook__name")
    def to(self, delivery: Delivery) -> SafeString | str:
        if delivery.webhook_id is None:
            return ", ".join(delivery.mail_to)
        return link_to(Webhook, delivery.webhook_id, delivery.webhook)

    @display(description="Status", ordering="status", label=STATUSES)
    def shown_status(self, delivery: Delivery) -> str:
        return delivery.status

    @display(description="Last response")
    def answer(self, delivery: Delivery) -> str | None:
        last = delivery.log[-1] if delivery.log else {}
        return last.get("error") or last.get("status")

    @display(description="Next attempt", ordering="next_attempt_at")
    def next_attempt(self, delivery: Delivery) -> str | None:
        return moment(delivery.next_attempt_at) if delivery.status == Delivery.Status.PENDING else None

    @display(description="Attempts made")
    def attempts_made(self, delivery: Delivery) -> SafeString | None:
        rows = [
            (moment(datetime.fromisoformat(each["at"])), each["seconds"], each["error"] or f"answered {each['status']}")
            for each in delivery.log
        ]
        return format_html_join("", '<p class="break-words">{}, {} s: {}</p>', rows) or None

    @display(description="Message")
    def message(self, delivery: Delivery) -> SafeString:
        text = f"{delivery.subject}\n\n{delivery.body}"
        if delivery.webhook_id:
            text = json.dumps(json.loads(delivery.body), indent=2, ensure_ascii=False)
        # A textarea, because the theme's styles break long lines in no other element.
        box = '<textarea readonly rows="{}" class="w-full text-xs" aria-label="Message">{}</textarea>'
        return format_html(box, min(text.count("\n") + 2, MOST_LINES), text)


def _deliveries(webhook: Webhook, status: str) -> SafeString:
    count = webhook.deliveries.filter(status=status).count()
    return link_to_list(Delivery, f"{count:,}", status__exact=status, webhook__id__exact=webhook.pk)
