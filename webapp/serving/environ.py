"""The WSGI environment of a request that has come as ASGI."""

import sys
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote_to_bytes

Scope = Mapping[str, Any]

WSGI: Mapping[str, Any] = {
    "SCRIPT_NAME": "",
    "wsgi.version": (1, 0),
    "wsgi.errors": sys.stderr,
    "wsgi.multithread": True,
    "wsgi.multiprocess": True,
    "wsgi.run_once": False,
}

_VARIABLES: dict[bytes, str] = {}
MOST_VARIABLES = 1_000


def environ_of(scope: Scope) -> dict[str, Any]:
    """Return the WSGI environment of a request, without its body."""
    server, client = scope.get("server") or ("", 0), scope.get("client") or ("", 0)
    raw_path, query = scope.get("raw_path"), scope["query_string"].decode("latin-1")
    path = unquote_to_bytes(raw_path) if raw_path is not None else scope["path"].encode()
    environ = {
        **WSGI,
        "REQUEST_METHOD": scope["method"],
        "PATH_INFO": path.decode("latin-1"),
        "QUERY_STRING": query,
        "SERVER_PROTOCOL": f"HTTP/{scope['http_version']}",
        "SERVER_NAME": server[0],
        "SERVER_PORT": str(server[1]),
        "REMOTE_ADDR": client[0],
        "wsgi.url_scheme": scope["scheme"],
    }
    for name, value in scope["headers"]:
        # Skipped with an underscore, because a client could fake a header that a proxy sets with a hyphen.
        if b"_" not in name:
            variable = _VARIABLES.get(name) or _variable(name)
            text = value.decode("latin-1")
            if variable in environ:
                text = f"{environ[variable]}{'; ' if variable == 'HTTP_COOKIE' else ','}{text}"
            environ[variable] = text
    return environ


def _variable(name: bytes) -> str:
    text = name.decode("latin-1").upper().replace("-", "_")
    variable = text if text in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{text}"
    if len(_VARIABLES) < MOST_VARIABLES:
        _VARIABLES[name] = variable
    return variable
