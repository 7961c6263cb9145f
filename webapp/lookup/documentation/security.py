"""How /api/schema says that an API key is shown."""

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension


class ApiKeyScheme(OpenApiAuthenticationExtension):
    target_class = "webapp.api_keys.authentication.ApiKeyAuthentication"
    name = ["bearer", "X-Api-Key"]

    def get_security_requirement(self, auto_schema: Any) -> list[dict[str, list[Any]]]:
        return [{name: []} for name in self.name]  # either will do

    def get_security_definition(self, auto_schema: Any) -> list[dict[str, str]]:
        return [
            {"type": "http", "scheme": "bearer", "description": "An API key, `tmk_..`"},
            {"type": "apiKey", "in": "header", "name": "X-Api-Key", "description": "An API key, `tmk_..`"},
        ]
