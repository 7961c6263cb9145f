"""A real identity provider on loopback, which also checks PKCE."""

import threading
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qs, urlsplit

import flask
import requests
from django.http import HttpResponse
from django.test import Client
from oidc_provider_mock import app
from werkzeug.serving import make_server

TIMEOUT_SECONDS = 10


@dataclass
class Provider:
    """exchanged: the number of codes that were exchanged for a token with the right verifier."""

    issuer: str = ""
    challenge: str = ""
    exchanged: int = 0

    def set_claims(self, subject: str, **claims: Any) -> None:
        answer = requests.put(f"{self.issuer}/users/{subject}", json=claims, timeout=TIMEOUT_SECONDS)
        answer.raise_for_status()

    def sign_in(self, client: Client, subject: str, path: str = "/oidc/sign-in") -> HttpResponse:
        """Follow the redirects between Tidegauge and the provider as a browser does. Returns the callback's answer."""
        return client.get(self.callback(client, subject, path))

    def callback(self, client: Client, subject: str, path: str = "/oidc/sign-in") -> str:
        """Return the address that the provider sends the browser to."""
        asked = client.get(path).headers["Location"]
        answer = requests.post(asked, data={"sub": subject}, allow_redirects=False, timeout=TIMEOUT_SECONDS)
        there = urlsplit(answer.headers["Location"])
        return f"{there.path}?{there.query}"

    def _check_verifier(self) -> Any:
        if flask.request.path == "/oauth2/authorize":
            [self.challenge] = parse_qs(flask.request.query_string.decode())["code_challenge"]
            assert flask.request.args["code_challenge_method"] == "S256"
        if flask.request.path == "/oauth2/token":
            digest = sha256(flask.request.form["code_verifier"].encode()).digest()
            if urlsafe_b64encode(digest).decode().rstrip("=") != self.challenge:
                return {"error": "invalid_grant"}, 400
            self.exchanged += 1
        return None


@contextmanager
def identity_provider() -> Iterator[Provider]:
    provider, served = Provider(), app()
    served.before_request(provider._check_verifier)
    server = make_server("localhost", 0, served, threaded=True)
    provider.issuer = f"http://localhost:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
