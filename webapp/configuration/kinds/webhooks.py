"""Webhooks. Their signing secrets are in no file; of a URL, reports show the host, because its path may be a secret."""

import json
from collections.abc import Collection
from typing import Any
from urllib.parse import urlsplit

from django.contrib.auth.models import User

from tidegauge.webapp.accounts.actors import Actor
from tidegauge.webapp.configuration.errors import ConfigurationError
from tidegauge.webapp.configuration.fields import FLAG, LIST, NAMES, REQUIRED, TEXT, Field, Fields
from tidegauge.webapp.configuration.kinds.kind import check, record_added, record_changed, record_removed
from tidegauge.webapp.notify.webhooks import services
from tidegauge.webapp.notify.webhooks.forms import WebhookForm
from tidegauge.webapp.notify.webhooks.models import Kind, Webhook


def _without_path(url: str | None) -> str | None:
    return url and f"{urlsplit(url).scheme}://{urlsplit(url).hostname}/.."


class Webhooks:
    noun = "webhook"
    fields = {
        "url": Field(TEXT, REQUIRED, _without_path),
        "kinds": Field(NAMES, [Kind.ALERT.value]),
        "states": Field(NAMES, []),
        "key_prefix": Field(LIST, []),
        "keys": Field(LIST, []),
        "enabled": Field(FLAG, True),
    }
    kept: dict[str, Fields] = {}

    def stored(self, names: Collection[str] | None) -> dict[str, Webhook]:
        webhooks = Webhook.objects.all() if names is None else Webhook.objects.filter(name__in=names)
        return {webhook.name: webhook for webhook in webhooks}

    def values(self, found: Webhook) -> dict[str, Any]:
        return {name: getattr(found, name) for name in self.fields}

    def create(self, name: str, fields: Fields, by: Actor) -> str:
        form = check(_form(name, fields))
        secret = services.create(form.save(commit=False), by=by if isinstance(by, User) else None)
        record_added(form.instance, by)
        return secret

    def change(self, found: Webhook, fields: Fields, by: Actor) -> None:
        form = check(_form(found.name, fields, found))
        services.update(form.save(commit=False))
        record_changed(form, by)

    def remove(self, found: Webhook, by: Actor) -> None:
        rules = ", ".join(repr(rule.name) for rule in found.alert_rules.all())
        if rules:
            # Otherwise the rules would change although no report has shown it.
            raise ConfigurationError(f"alert rules send to it: {rules}; declare them without it, or remove them too")
        record_removed(found, by)
        found.delete()


def _form(name: str, fields: Fields, found: Webhook | None = None) -> WebhookForm:
    as_text = {each: json.dumps(fields[each]) for each in ("key_prefix", "keys")}
    return WebhookForm({"name": name, **fields, **as_text}, instance=found)
