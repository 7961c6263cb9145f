"""Programs that make one request to the API: a curl command, Python, JavaScript."""

import json
from collections.abc import Sequence
from shlex import quote as in_shell
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

PYTHON = """\
import os

from tidegauge.client import Client

with Client({url}, os.environ["{key}"]) as client:
    {lines}
"""

JAVASCRIPT = """\
const answer = await fetch({url}, {{
  headers: {headers},{more}
}});
if (!answer.ok) throw new Error(await answer.text());
console.log({shown});
"""

# The largest integer that JavaScript's numbers hold exactly; larger ones would be rounded.
LARGEST_EXACT = 2**53 - 1


class Server(NamedTuple):
    """url: the address of the web process. key: the environment variable that has the API key."""

    url: str
    key: str = "TIDEGAUGE_API_KEY"

    def address(self, *path: str) -> str:
        return "/".join([f"{self.url}/api/v1", *(quote(part, safe="") for part in path)])


def curl(server: Server, url: str, parameters: Sequence[tuple[str, Any]] = (), more: Sequence[str] = ()) -> str:
    authorization = f'-H "Authorization: Bearer ${server.key}"'
    encoded = urlencode(parameters)
    if "%" not in encoded and "+" not in encoded:
        return " \\\n  ".join([f'curl -fsS "{with_query(url, parameters)}"', authorization, *more])
    readable = [f"--data-urlencode {in_shell(f'{name}={value}')}" for name, value in parameters]
    return " \\\n  ".join([f'curl -fsSG "{url}"', authorization, *readable, *more])


def python(server: Server, *lines: str) -> str:
    return PYTHON.format(url=as_json(server.url), key=server.key, lines="\n    ".join(lines)).rstrip()


def javascript(server: Server, url: str, shown: str, body: str = "") -> str:
    authorization = f"Authorization: `Bearer ${{process.env.{server.key}}}`"
    content_type = ', "Content-Type": "application/json"' if body else ""
    more = f'\n  method: "POST",\n  body: {body},' if body else ""
    headers = f"{{{authorization}{content_type}}}"
    return JAVASCRIPT.format(url=as_json(url), headers=headers, more=more, shown=shown).rstrip()


def in_javascript(body: Any) -> str:
    """Return a JavaScript expression whose value is the JSON text of `body`."""
    return f"JSON.stringify({as_json(body)})" if _is_exact(body) else as_json(as_json(body))


def _is_exact(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_exact, value))
    if isinstance(value, dict):
        return all(map(_is_exact, value.values()))
    return not isinstance(value, int) or abs(value) <= LARGEST_EXACT


def with_query(url: str, parameters: Sequence[tuple[str, Any]]) -> str:
    return f"{url}?{urlencode(parameters)}" if parameters else url


def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
