"""The same question as a curl command, Python, JavaScript and SQL: for pages and documentation.

SQL reads the live view of a state in the database, which shows the committed batch: there is none for an earlier batch,
for a saved query, and for states in other stores.
"""

import json
from collections.abc import Mapping, Sequence
from shlex import quote as in_shell
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from psycopg import sql

from state_backends import BACKENDS, StateSpec
from state_backends.reader.filters import IN, IS_NOT_NULL, IS_NULL, SQL_OF, Filter, check_where

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

# JavaScript's numbers have no more digits.
LARGEST_EXACT = 2**53 - 1

Snippets = dict[str, str]


class Server(NamedTuple):
    """url: of the web process. key: the environment variable that has the API key."""

    url: str
    key: str = "TIDEMARK_API_KEY"

    def address(self, *path: str) -> str:
        return "/".join([f"{self.url}/api/v1", *(quote(part, safe="") for part in path)])


class Wanted(NamedTuple):
    """Which entries. order_by: a measure, `-` before it for descending order. limit: how many entries; 0: all."""

    order_by: str = ""
    where: Sequence[str] = ()
    as_of: int | None = None
    limit: int = 0

    @property
    def parameters(self) -> list[tuple[str, Any]]:
        several = [("where", each) for each in self.where]
        return several + [(name, value) for name, value in self._asdict().items() if value and name != "where"]

    @property
    def arguments(self) -> list[str]:
        return [f"{name}={value!r}" for name, value in self._asdict().items() if value]


def lookup(server: Server, spec: StateSpec, keys: Sequence[Sequence[Any]], measures: Sequence[str] = ()) -> Snippets:
    """Look keys up. keys: their parts as in JSON. Returns language to program, each of which prints the results."""
    body = {"keys": [list(key) for key in keys]} | ({"measures": list(measures)} if measures else {})
    asked = ", ".join([repr([tuple(key) for key in keys]), *_measures(measures)])
    url = server.address("states", spec.name, "query")
    return {
        "curl": _curl(server, url, more=['-H "Content-Type: application/json"', f"-d {in_shell(_json(body))}"]),
        "Python": _python(
            server,
            f"for result in client.state({spec.name!r}).get_many({asked}):",
            "    print(result.key, result.status, result.value)",
        ),
        "JavaScript": _javascript(server, url, "JSON.stringify((await answer.json()).results)", _in_javascript(body)),
    } | _sql(spec, measures, _is_one_of(spec, keys))


def one_key(server: Server, spec: StateSpec, key: Sequence[Any], measures: Sequence[str] = ()) -> Snippets:
    """Read one key by GET."""
    parts = [part if isinstance(part, str) else _json(part) for part in key]
    in_path = all(part not in ("", ".", "..") and "/" not in part for part in parts)
    url = server.address("states", spec.name, "keys", *(parts if in_path else ()))
    parameters = [] if in_path else [("key", _json(list(key)))]
    parameters += [("measures", ",".join(measures))] if measures else []
    asked = ", ".join([repr(tuple(key)), *_measures(measures)])
    return {
        "curl": _curl(server, url, parameters),
        "Python": _python(server, f"print(client.state({spec.name!r}).get({asked}))"),
        "JavaScript": _javascript(server, _with(url, parameters), "JSON.stringify((await answer.json()).value)"),
    } | _sql(spec, measures, _is_one_of(spec, [key]))


def entries(server: Server, spec: StateSpec, wanted: Wanted) -> Snippets:
    """List entries: those that meet the conditions, the first ones by a measure or by key."""
    url, parameters = server.address("states", spec.name, "entries"), wanted.parameters
    return {
        "curl": _curl(server, url, parameters),
        "Python": _python(
            server,
            f"for entry in client.state({spec.name!r}).entries({', '.join(wanted.arguments)}):",
            "    print(entry.key, entry.value)",
        ),
        "JavaScript": _javascript(server, _with(url, parameters), "JSON.stringify((await answer.json()).entries)"),
    } | _entries_sql(spec, wanted)


def export(server: Server, spec: StateSpec, wanted: Wanted | None = None) -> Snippets:
    """Export entries as CSV, in key order."""
    wanted = wanted or Wanted()
    url, parameters, file = server.address("states", spec.name, "export.csv"), wanted.parameters, f"{spec.name}.csv"
    asked = ", ".join([repr(file), "'csv'", *wanted.arguments])
    return {
        "curl": _curl(server, url, parameters, [f"-o {in_shell(file)}"]),
        "Python": _python(server, f"client.state({spec.name!r}).export_to({asked})"),
        "JavaScript": _javascript(server, _with(url, parameters), "await answer.text()"),
    } | _entries_sql(spec, wanted)


def saved_query(server: Server, name: str, values: Mapping[str, Any], version: int | None = None) -> Snippets:
    """Run a saved query. values: of its parameters, as text, or lists of them."""
    versioned = [] if version is None else ["versions", str(version)]
    url, parameters = server.address("queries", name, *versioned), _repeated(values)
    query = f"{name!r}" if version is None else f"{name!r}, version={version}"
    return {
        "curl": _curl(server, url, parameters),
        "Python": _python(
            server,
            f"for answer in client.saved_query({query}).run({dict(values)!r}).answers:",
            "    print(answer.table())",
        ),
        "JavaScript": _javascript(server, _with(url, parameters), "JSON.stringify((await answer.json()).answers)"),
    }


def _curl(server: Server, url: str, parameters: Sequence[tuple[str, Any]] = (), more: Sequence[str] = ()) -> str:
    authorization = f'-H "Authorization: Bearer ${server.key}"'
    encoded = urlencode(parameters)
    if "%" not in encoded and "+" not in encoded:
        return " \\\n  ".join([f'curl -fsS "{_with(url, parameters)}"', authorization, *more])
    readable = [f"--data-urlencode {in_shell(f'{name}={value}')}" for name, value in parameters]
    return " \\\n  ".join([f'curl -fsSG "{url}"', authorization, *readable, *more])


def _python(server: Server, *lines: str) -> str:
    return PYTHON.format(url=_json(server.url), key=server.key, lines="\n    ".join(lines)).rstrip()


def _javascript(server: Server, url: str, shown: str, body: str = "") -> str:
    authorization = f"Authorization: `Bearer ${{process.env.{server.key}}}`"
    content_type = ', "Content-Type": "application/json"' if body else ""
    more = f'\n  method: "POST",\n  body: {body},' if body else ""
    headers = f"{{{authorization}{content_type}}}"
    return JAVASCRIPT.format(url=_json(url), headers=headers, more=more, shown=shown).rstrip()


def _in_javascript(body: Any) -> str:
    """Return an expression of the JSON text."""
    return f"JSON.stringify({_json(body)})" if _is_exact(body) else _json(_json(body))


def _is_exact(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_exact, value))
    if isinstance(value, dict):
        return all(map(_is_exact, value.values()))
    return not isinstance(value, int) or abs(value) <= LARGEST_EXACT


def _entries_sql(spec: StateSpec, wanted: Wanted) -> Snippets:
    if wanted.as_of is not None:
        return {}
    conditions = [_condition(spec, each) for each in check_where(spec, [Filter.parse(text) for text in wanted.where])]
    rest = sql.SQL("\nWHERE {}").format(sql.SQL("\n  AND ").join(conditions)) if conditions else sql.SQL("")
    columns: list[sql.Composable] = [sql.Identifier(column) for column in spec.key]
    if wanted.order_by:
        direction = " DESC NULLS LAST" if wanted.order_by.startswith("-") else " ASC NULLS LAST"
        columns = [sql.SQL("{}" + direction).format(sql.Identifier(wanted.order_by.removeprefix("-"))), *columns]
    if columns:
        rest += sql.SQL("\nORDER BY {}").format(sql.SQL(", ").join(columns))
    return _sql(spec, (), rest + sql.SQL(f"\nLIMIT {wanted.limit}" if wanted.limit else ""))


def _condition(spec: StateSpec, condition: Filter) -> sql.Composable:
    # The API compares text by its bytes; so do key columns.
    is_other_text = isinstance(condition.value, str) and condition.column not in spec.key
    column = sql.SQL('{} COLLATE "C"' if is_other_text else "{}").format(sql.Identifier(condition.column))
    if condition.operator in (IS_NULL, IS_NOT_NULL):
        return sql.SQL("{} {}").format(column, sql.SQL(condition.operator.upper()))
    if condition.operator == IN:
        listed = sql.SQL(", ").join(map(sql.Literal, condition.value)) if condition.value else sql.SQL("NULL")
        return sql.SQL("{} IN ({})").format(column, listed)
    return sql.SQL("{} {} {}").format(column, sql.SQL(SQL_OF[condition.operator]), sql.Literal(condition.value))


def _sql(spec: StateSpec, measures: Sequence[str], rest: sql.Composable) -> Snippets:
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


def _measures(measures: Sequence[str]) -> list[str]:
    return [f"measures={list(measures)!r}"] if measures else []


def _with(url: str, parameters: Sequence[tuple[str, Any]]) -> str:
    return f"{url}?{urlencode(parameters)}" if parameters else url


def _repeated(values: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(name, each) for name, value in values.items() for each in (value if isinstance(value, list) else [value])]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
