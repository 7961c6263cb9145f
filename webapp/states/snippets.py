"""The same question as a curl command, Python, JavaScript and SQL: for pages and documentation.

SQL reads the live view of a state in the database, which shows the committed batch; other stores have none.
"""

import json
from collections.abc import Mapping, Sequence
from shlex import quote as in_shell
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from psycopg import sql

from state_backends import BACKENDS, StateSpec

LANGUAGES = ("curl", "Python", "JavaScript", "SQL")

PYTHON = """\
import os

from tidemark.client import Client

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


class Where(NamedTuple):
    """url: of the web process. key: the environment variable that has the API key."""

    url: str
    key: str = "TIDEMARK_API_KEY"

    def path(self, state: str, call: str, parameters: Mapping[str, Any] | None = None) -> str:
        query = f"?{urlencode(parameters)}" if parameters else ""
        return f"{self.url}/api/v1/states/{quote(state, safe='')}/{call}{query}"


def lookup(
    where: Where, spec: StateSpec, keys: Sequence[Sequence[Any]], measures: Sequence[str] = ()
) -> dict[str, str]:
    """Look keys up. keys: their parts as in JSON. Returns language to program, each of which prints the results."""
    body = {"keys": [list(key) for key in keys]} | ({"measures": list(measures)} if measures else {})
    asked = ", ".join([repr([tuple(key) for key in keys]), *([f"measures={list(measures)!r}"] if measures else [])])
    url = where.path(spec.name, "query")
    return {
        "curl": _curl(where, url, ['-H "Content-Type: application/json"', f"-d {in_shell(_json(body))}"]),
        "Python": _python(
            where,
            f"for result in client.state({spec.name!r}).get_many({asked}):",
            "    print(result.key, result.status, result.value)",
        ),
        "JavaScript": _javascript(
            where, url, "JSON.stringify((await answer.json()).results)", f"JSON.stringify({_json(body)})"
        ),
    } | _sql(spec, measures, _is_one_of(spec, keys))


def entries(where: Where, spec: StateSpec, order_by: str, limit: int) -> dict[str, str]:
    """List the first entries by a measure, `-` before it for descending order."""
    url = where.path(spec.name, "entries", {"order_by": order_by, "limit": limit})
    measure = sql.Identifier(order_by.removeprefix("-"))
    direction = " DESC NULLS LAST" if order_by.startswith("-") else " ASC NULLS LAST"
    keys = [sql.Identifier(column) for column in spec.key]
    order = sql.SQL(", ").join([sql.SQL("{}{}").format(measure, sql.SQL(direction)), *keys])
    return {
        "curl": _curl(where, url),
        "Python": _python(
            where,
            f"for entry in client.state({spec.name!r}).entries(order_by={order_by!r}, limit={limit}):",
            "    print(entry.key, entry.value)",
        ),
        "JavaScript": _javascript(where, url, "JSON.stringify((await answer.json()).entries)"),
    } | _sql(spec, (), sql.SQL("\nORDER BY {}\nLIMIT {}").format(order, limit))


def export(where: Where, spec: StateSpec) -> dict[str, str]:
    """Export all entries as CSV, in key order."""
    url = where.path(spec.name, "export.csv")
    keys = sql.SQL(", ").join(sql.Identifier(column) for column in spec.key)
    return {
        "curl": _curl(where, url, [f"-o {in_shell(spec.name)}.csv"]),
        "Python": _python(where, f"client.state({spec.name!r}).export_to({f'{spec.name}.csv'!r}, 'csv')"),
        "JavaScript": _javascript(where, url, "await answer.text()"),
    } | _sql(spec, (), sql.SQL("\nORDER BY {}").format(keys) if spec.key else sql.SQL(""))


def _curl(where: Where, url: str, more: Sequence[str] = ()) -> str:
    return " \\\n  ".join([f'curl -s "{url}"', f'-H "Authorization: Bearer ${where.key}"', *more])


def _python(where: Where, *lines: str) -> str:
    return PYTHON.format(url=_json(where.url), key=where.key, lines="\n    ".join(lines)).rstrip()


def _javascript(where: Where, url: str, shown: str, body: str = "") -> str:
    authorization = f"Authorization: `Bearer ${{process.env.{where.key}}}`"
    content_type = ', "Content-Type": "application/json"' if body else ""
    more = f'\n  method: "POST",\n  body: {body},' if body else ""
    headers = f"{{{authorization}{content_type}}}"
    return JAVASCRIPT.format(url=_json(url), headers=headers, more=more, shown=shown).rstrip()


def _sql(spec: StateSpec, measures: Sequence[str], rest: sql.Composable) -> dict[str, str]:
    if not BACKENDS[spec.backend].capabilities.in_ledger:
        return {}
    names = [*spec.key, *(measures or spec.measures or ["value"])]
    columns = sql.SQL(", ").join(map(sql.Identifier, names))
    view = sql.Identifier("tidemark_live", spec.name)
    return {"SQL": sql.SQL("SELECT {}\nFROM {}{}").format(columns, view, rest).as_string()}


def _is_one_of(spec: StateSpec, keys: Sequence[Sequence[Any]]) -> sql.Composable:
    if not spec.key:
        return sql.SQL("")
    columns = sql.SQL(", ").join(map(sql.Identifier, spec.key))
    rows = sql.SQL(", ").join(
        sql.SQL("({})").format(sql.SQL(", ").join(sql.Literal(part) for part in key)) for key in keys
    )
    return sql.SQL("\nWHERE ({}) IN ({})").format(columns, rows)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
