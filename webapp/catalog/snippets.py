"""Writes a question as a curl command, Python, JavaScript and SQL, for pages and documentation."""

from collections.abc import Mapping, Sequence
from shlex import quote as in_shell
from typing import Any, NamedTuple

from tidegauge.state_backends import StateSpec
from tidegauge.webapp.catalog import snippets_in_sql
from tidegauge.webapp.catalog.programs import Server, as_json, curl, in_javascript, javascript, python, with_query

LANGUAGES = ("curl", "Python", "JavaScript", "SQL")


class Snippets(dict[str, str]):
    """Language to program. url, body: the request that all but the SQL make; body: JSON, empty for a GET."""

    def __init__(self, url: str, programs: Mapping[str, str], body: str = "") -> None:
        super().__init__(programs)
        self.url = url
        self.body = body


class Wanted(NamedTuple):
    """Which entries. order_by: a measure, `-` before it for descending order. limit: how many entries; 0: all.

    prefix: the first parts of their keys, as in JSON. search: how any part of their keys begins. measures: which
    measures to return; empty: all.
    """

    order_by: str = ""
    where: Sequence[str] = ()
    at_txid: int | None = None
    limit: int = 0
    prefix: Sequence[Any] = ()
    search: str = ""
    measures: Sequence[str] = ()

    @property
    def parameters(self) -> list[tuple[str, Any]]:
        given = self._given
        several = [("where", each) for each in given.pop("where", ())]
        prefix = [("prefix", as_json(list(given.pop("prefix"))))] if "prefix" in given else []
        names = [("measures", ",".join(given.pop("measures")))] if "measures" in given else []
        return [*prefix, *several, *names, *given.items()]

    @property
    def arguments(self) -> list[str]:
        return [f"{name}={list(value) if isinstance(value, tuple) else value!r}" for name, value in self._given.items()]

    @property
    def _given(self) -> dict[str, Any]:
        # A zero is left out, except for at_txid, because 0 is a batch there; a limit of 0 is no limit.
        return {name: value for name, value in self._asdict().items() if value or (name, value) == ("at_txid", 0)}


def lookup(
    server: Server,
    spec: StateSpec,
    keys: Sequence[Sequence[Any]],
    measures: Sequence[str] = (),
    at_txid: int | None = None,
) -> Snippets:
    """Look keys up. keys: their parts as in JSON. Each program prints the results."""
    body: dict[str, Any] = {"keys": [list(key) for key in keys]} | ({"measures": list(measures)} if measures else {})
    body |= {} if at_txid is None else {"at_txid": at_txid}
    at_batch = [] if at_txid is None else [f"at_txid={at_txid}"]
    asked = ", ".join([repr([tuple(key) for key in keys]), *_measures(measures), *at_batch])
    url = server.address("states", spec.name, "lookup")
    programs = {
        "curl": curl(server, url, more=['-H "Content-Type: application/json"', f"-d {in_shell(as_json(body))}"]),
        "Python": python(
            server,
            f"for result in client.state({spec.name!r}).get_many({asked}):",
            "    print(result.key, result.status, result.value)",
        ),
        "JavaScript": javascript(server, url, "JSON.stringify((await answer.json()).results)", in_javascript(body)),
    }
    in_sql = {} if at_txid is not None else snippets_in_sql.of_keys(spec, keys, measures)
    return Snippets(url, programs | in_sql, as_json(body))


def one_key(server: Server, spec: StateSpec, key: Sequence[Any], measures: Sequence[str] = ()) -> Snippets:
    """Read one key by GET."""
    url = server.address("states", spec.name, "keys")
    parameters = [("key", as_json(list(key)))] if spec.key else []
    parameters += [("measures", ",".join(measures))] if measures else []
    asked = ", ".join([repr(tuple(key)), *_measures(measures)])
    programs = {
        "curl": curl(server, url, parameters),
        "Python": python(server, f"print(client.state({spec.name!r}).get({asked}))"),
        "JavaScript": javascript(server, with_query(url, parameters), "JSON.stringify((await answer.json()).value)"),
    }
    return Snippets(with_query(url, parameters), programs | snippets_in_sql.of_keys(spec, [key], measures))


def entries(server: Server, spec: StateSpec, wanted: Wanted) -> Snippets:
    """List the entries that meet the conditions, ordered by a measure or by key."""
    url, parameters = server.address("states", spec.name, "entries"), wanted.parameters
    programs = {
        "curl": curl(server, url, parameters),
        "Python": python(
            server,
            f"for entry in client.state({spec.name!r}).entries({', '.join(wanted.arguments)}):",
            "    print(entry.key, entry.value)",
        ),
        "JavaScript": javascript(server, with_query(url, parameters), "JSON.stringify((await answer.json()).entries)"),
    }
    return Snippets(with_query(url, parameters), programs | _entries_in_sql(spec, wanted))


def groups(server: Server, spec: StateSpec, by: Sequence[str], wanted: Wanted) -> Snippets:
    """Group entries by key columns. wanted: which entries; its order and limit apply to the groups."""
    url, parameters = server.address("states", spec.name, "groups"), [("by", ",".join(by)), *wanted.parameters]
    programs = {
        "curl": curl(server, url, parameters),
        "Python": python(
            server,
            f"for group in client.state({spec.name!r}).groups({', '.join([repr(list(by)), *wanted.arguments])}):",
            "    print(group.key, group.keys, group.value)",
        ),
        "JavaScript": javascript(server, with_query(url, parameters), "JSON.stringify((await answer.json()).groups)"),
    }
    return Snippets(with_query(url, parameters), programs)


def export(server: Server, spec: StateSpec, wanted: Wanted | None = None) -> Snippets:
    """Export entries as CSV, in key order."""
    wanted = wanted or Wanted()
    url, file = server.address("states", spec.name, "export"), f"{spec.name}.csv"
    parameters = [("format", "csv"), *wanted.parameters]
    asked = ", ".join([repr(file), "'csv'", *wanted.arguments])
    programs = {
        "curl": curl(server, url, parameters, [f"-o {in_shell(file)}"]),
        "Python": python(server, f"client.state({spec.name!r}).export_to({asked})"),
        "JavaScript": javascript(server, with_query(url, parameters), "await answer.text()"),
    }
    return Snippets(with_query(url, parameters), programs | _entries_in_sql(spec, wanted))


def saved_query(server: Server, name: str, values: Mapping[str, Any], version: int | None = None) -> Snippets:
    """Run a saved query. values: the values of its parameters, as text or lists of texts."""
    versioned = [] if version is None else ["versions", str(version)]
    url, parameters = server.address("saved-queries", name, *versioned), _repeated(values)
    query = f"{name!r}" if version is None else f"{name!r}, version={version}"
    programs = {
        "curl": curl(server, url, parameters),
        "Python": python(
            server,
            f"for answer in client.saved_query({query}).run({dict(values)!r}).answers:",
            "    print(answer.table())",
        ),
        "JavaScript": javascript(server, with_query(url, parameters), "JSON.stringify((await answer.json()).answers)"),
    }
    return Snippets(with_query(url, parameters), programs)


def pipeline_series(server: Server, pipeline: str, span: Mapping[str, Any]) -> Snippets:
    """Read what a pipeline did over time. span: `from` and `to`, or `last`, as the API takes them."""
    read = f"client.series({', '.join([repr(pipeline), *_span(span)])})"
    return _series(server, server.address("pipelines", pipeline, "series"), list(span.items()), read)


def key_series(
    server: Server, spec: StateSpec, key: Sequence[Any], measures: Sequence[str], span: Mapping[str, Any]
) -> Snippets:
    """Read the measures of one key over time. span: as `pipeline_series` takes it."""
    asked = [("key", as_json(list(key))), ("measures", ",".join(measures)), *span.items()]
    arguments = ", ".join([repr(tuple(key)), *_measures(measures), *_span(span)])
    read = f"client.state({spec.name!r}).series({arguments})"
    return _series(server, server.address("states", spec.name, "series"), asked, read)


def batches(server: Server, pipeline: str, limit: int) -> Snippets:
    """List the newest batches of a pipeline."""
    url, parameters = server.address("pipelines", pipeline, "batches"), [("limit", limit)]
    programs = {
        "curl": curl(server, url, parameters),
        "Python": python(
            server,
            f"for batch in client.batches({pipeline!r}, limit={limit}):",
            '    print(batch["txid"], batch["status"], batch["seconds"])',
        ),
        "JavaScript": javascript(server, with_query(url, parameters), "JSON.stringify((await answer.json()).batches)"),
    }
    return Snippets(with_query(url, parameters), programs)


def _series(server: Server, url: str, parameters: Sequence[tuple[str, Any]], read: str) -> Snippets:
    whole = with_query(url, parameters)
    programs = {
        "curl": curl(server, url, parameters),
        "Python": python(server, f"for row in {read}.table():", '    print(row.pop("time"), row)'),
        "JavaScript": javascript(server, whole, "JSON.stringify((await answer.json()).series)"),
    }
    return Snippets(whole, programs)


def _entries_in_sql(spec: StateSpec, wanted: Wanted) -> dict[str, str]:
    if wanted.at_txid is not None:
        return {}
    return snippets_in_sql.of_entries(
        spec, wanted.prefix, wanted.search, wanted.where, wanted.order_by, wanted.limit, wanted.measures
    )


def _measures(measures: Sequence[str]) -> list[str]:
    return [f"measures={list(measures)!r}"] if measures else []


def _span(span: Mapping[str, Any]) -> list[str]:
    arguments = {"from": "start", "to": "stop"}
    return [
        f"{arguments.get(name, name)}={int(value) if name == 'last' else repr(value)}" for name, value in span.items()
    ]


def _repeated(values: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(name, each) for name, value in values.items() for each in (value if isinstance(value, list) else [value])]
