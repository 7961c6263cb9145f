"""Webhooks. Their signing secrets are in no file; of a URL, reports show the host, because its path may be a secret."""

import json
from urllib.parse import urlsplit

from django.contrib.auth.models import User

from tidegauge.webapp.accounts.actors import Actor
from tidegauge.webapp.configuration.errors import ConfigurationError
from tidegauge.webapp.configuration.fields import FLAG, LIST, NAMES, REQUIRED, TEXT, Field, Fields
from tidegauge.webapp.configuration.kinds.kind import FormKind, check, record_added, record_changed
from tidegauge.webapp.notify.webhooks import services
from tidegauge.webapp.notify.webhooks.forms import WebhookForm
from tidegauge.webapp.notify.webhooks.models import Kind, Webhook


def _without_path(url: str | None) -> str | None:
    return url and f"{urlsplit(url).scheme}://{urlsplit(url).hostname}/.."


class Webhooks(FormKind):
    noun, model = "webhook", Webhook
    fields = {
        "url": Field(TEXT, REQUIRED, _without_path),
        "kinds": Field(NAMES, [Kind.ALERT.value]),
        "states": Field(NAMES, []),
        "key_prefix": Field(LIST, []),
        "keys": Field(LIST, []),
        "enabled": Field(FLAG, True),
    }

    def form(self, name: str, fields: Fields, found: Webhook | None, by: Actor) -> WebhookForm:
        as_text = {each: json.dumps(fields[each]) for each in ("key_prefix", "keys")}
        return check(WebhookForm({"name": name, **fields, **as_text}, instance=found))

    def create(self, name: str, fields: Fields, by: Actor) -> str:
        form = self.form(name, fields, None, by)
        secret = services.create(form.save(commit=False), by=by if isinstance(by, User) else None)
        record_added(form.instance, by)
        return secret

    def change(self, found: Webhook, fields: Fields, by: Actor) -> None:
        form = self.form(found.name, fields, found, by)
        services.update(form.save(commit=False))
        record_changed(form, by)

    def remove(self, found: Webhook, by: Actor) -> None:
        rules = ", ".join(repr(rule.name) for rule in found.alert_rules.all())
        if rules:
            # Otherwise the rules would change although no report has shown it.
            raise ConfigurationError(f"alert rules send to it: {rules}; declare them without it, or remove them too")
        super().remove(found, by)
