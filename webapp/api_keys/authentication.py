"""How a request says which API key it holds: `Authorization: Bearer tmk_..` or `X-Api-Key: tmk_..`."""

from django.contrib.auth.models import AnonymousUser
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from webapp.api_keys import verification
from webapp.api_keys.models import ApiKey
from webapp.api_keys.throttling import check_address, count_wrong_key


class ApiKeyAuthentication(BaseAuthentication):
    """Sets `request.auth` to the ApiKey; requests without one go on to the session."""

    def authenticate(self, request: Request) -> tuple[AnonymousUser, ApiKey] | None:
        token = _token(request.META)
        if token is None:
            return None
        # Keys that nobody has seen yet cost a query each; those in use are not held up by a neighbour's wrong ones.
        if verification.is_new(token):
            check_address(request)
        key = verification.verified(token)
        if key is None:
            count_wrong_key(request)
            raise AuthenticationFailed("this API key is unknown, expired or revoked; ask an administrator for another")
        return AnonymousUser(), key

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="tidemark"'


def _token(headers) -> str | None:
    scheme, _, token = headers.get("HTTP_AUTHORIZATION", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else headers.get("HTTP_X_API_KEY")
