"""The calls under /admin/v1: export the configuration, compare it with a document, apply one."""

from typing import Any

from django.core.exceptions import PermissionDenied
from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from tidegauge.webapp.accounts.key_options import Scope
from tidegauge.webapp.accounts.models import ApiKey
from tidegauge.webapp.accounts.permissions import HasScope, api_key, key_scope
from tidegauge.webapp.api.api_view import ApiView
from tidegauge.webapp.api.fields import ChoiceParameter
from tidegauge.webapp.api.rendering import OrjsonRenderer, read_body
from tidegauge.webapp.api.requests import RequestSerializer
from tidegauge.webapp.configuration import services
from tidegauge.webapp.configuration.document import Document, Part, merged
from tidegauge.webapp.configuration.errors import ConfigurationError
from tidegauge.webapp.configuration.notation import NotationError, as_yaml, parse
from tidegauge.webapp.configuration.report import as_documents

BODY = "the body"


class JsonDocumentParser(BaseParser):
    media_type = "application/json"

    def parse(self, stream: Any, media_type: Any = None, parser_context: Any = None) -> Any:
        try:
            return parse(read_body(stream, parser_context).decode("utf-8"))
        except (NotationError, UnicodeDecodeError) as error:
            raise ParseError(f"{BODY}: {error}") from error


class YamlDocumentParser(JsonDocumentParser):
    media_type = "application/yaml"


class YamlRenderer(BaseRenderer):
    media_type = "application/yaml"
    format = "yaml"

    def render(self, data: Any, accepted_media_type: Any = None, renderer_context: Any = None) -> bytes:
        return as_yaml(data).encode()


class PruneParameters(RequestSerializer):
    prune = ChoiceParameter(["true", "false"], help_text="`true`: also remove what the document does not have")


class HasUnconfinedKey(HasScope):
    """Requires an API key with the scope, and without restrictions, because what is declared concerns everything."""

    def has_permission(self, request: Request, view: Any) -> bool:
        if api_key(request) is None and request.user.is_authenticated:
            raise PermissionDenied("configuration is read and applied with an API key; people use the admin")
        if not super().has_permission(request, view):
            return False
        key_scope(request).check_unrestricted()
        return True


class DocumentView(ApiView):
    """The base of both. Not in /api/schema, which has what reads states; docs/configuration-as-files.md has these."""

    schema = None
    permission_classes = [HasUnconfinedKey]
    scopes = dict.fromkeys(("GET", "HEAD", "POST", "PUT"), Scope.CONFIGURATION)
    parser_classes = [JsonDocumentParser, YamlDocumentParser]

    def handle_exception(self, error: Exception) -> Response:
        return super().handle_exception(ParseError(str(error)) if isinstance(error, ConfigurationError) else error)

    def asked(self, request: Request) -> tuple[Document, dict[str, Any]]:
        """Return the document of the body, and how it is applied."""
        prune = PruneParameters.read(request.query_params.dict()).get("prune") == "true"
        return merged([Part(BODY, request.data)]), {"prune": prune, "by": _key(request)}


class ConfigurationView(DocumentView):
    parameters = {"PUT": PruneParameters}

    def get_renderers(self) -> list[BaseRenderer]:
        return [OrjsonRenderer(), YamlRenderer()] if self.request.method in ("GET", "HEAD") else [OrjsonRenderer()]

    def get(self, request: Request) -> Response:
        """Export the configuration, as JSON or as YAML."""
        return Response(services.export())

    def put(self, request: Request) -> Response:
        """Apply a document. The answer has the secrets of what was created, which cannot be read again."""
        document, how = self.asked(request)
        applied = services.apply(document, **how)
        body = {"changes": as_documents(applied.changes), "secrets": applied.secrets}
        return Response(body, headers={"Cache-Control": "no-store"})


class ConfigurationDiffView(DocumentView):
    parameters = {"POST": PruneParameters}

    def post(self, request: Request) -> Response:
        """Return what applying a document would change."""
        document, how = self.asked(request)
        return Response({"changes": as_documents(services.diff(document, **how))})


def _key(request: Request) -> ApiKey | None:
    key = api_key(request)
    assert key is not None  # None would be the command line, which may give every scope
    return key
