"""API keys that are active. Secrets are in no file; a key that is created gets one, and a changed key keeps its own."""

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

from django.db.models import Q
from django.utils import timezone

from tidegauge.webapp.accounts import services
from tidegauge.webapp.accounts.actors import Actor
from tidegauge.webapp.accounts.admin.forms import ApiKeyForm
from tidegauge.webapp.accounts.key_options import Scope
from tidegauge.webapp.accounts.models import ApiKey
from tidegauge.webapp.configuration.errors import ConfigurationError
from tidegauge.webapp.configuration.fields import LIST, NAMES, TIME, WHOLE, Field, Fields
from tidegauge.webapp.configuration.kinds.kind import check

# The command line may give every scope, as `create_api_key` may.
COMMAND_LINE = SimpleNamespace(has_perm=lambda permission: True)


class ApiKeys:
    noun = "API key"
    fields = {
        "scopes": Field(NAMES, [Scope.READ.value]),
        "states": Field(NAMES, []),
        "key_prefix": Field(LIST, []),
        "queries": Field(NAMES, []),
        "rate": Field(WHOLE),
        "burst": Field(WHOLE),
        "expires_at": Field(TIME),
    }
    kept: dict[str, Fields] = {}

    def stored(self, names: Collection[str] | None) -> dict[str, ApiKey]:
        keys = ApiKey.objects.filter(Q(expires_at=None) | Q(expires_at__gt=timezone.now()), revoked_at=None)
        found: dict[str, ApiKey] = {}
        for key in keys if names is None else keys.filter(name__in=names):
            if key.name in found:
                raise ConfigurationError(
                    f"API key {key.name!r}: {found[key.name]} and {key} are both active, and a file could mean either; "
                    "revoke one of them with `tidegauge api_keys revoke PREFIX`"
                )
            found[key.name] = key
        return found

    def values(self, found: ApiKey) -> dict[str, Any]:
        return {name: getattr(found, name) for name in self.fields}

    def create(self, name: str, fields: Fields, by: Actor) -> str:
        return services.create_api_key(name, created_by=by, **self._options(name, fields, by))[1]

    def change(self, found: ApiKey, fields: Fields, by: Actor) -> None:
        options = self._options(found.name, fields, by)
        services.change_api_key(found, by, **options)

    def remove(self, found: ApiKey, by: Actor) -> None:
        if isinstance(by, ApiKey) and found.pk == by.pk:
            raise ConfigurationError("it is the key that applies the files, which may not revoke itself; declare it")
        services.revoke_api_key(found, by)

    def _options(self, name: str, fields: Fields, by: Actor) -> dict[str, Any]:
        form = ApiKeyForm({"name": name, **fields})
        form.giver = COMMAND_LINE if by is None else by
        cleaned = check(form).cleaned_data
        return {field: cleaned[field] for field in self.fields}
