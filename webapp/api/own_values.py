"""What the API reference fills calls in with: a state that its reader may see, one of its keys, its pipeline."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import quote, urlencode

from tidegauge.state_backends import StateSpec
from tidegauge.state_backends.errors import BackendUnavailable, FindingError, MovedOnError, UnknownStateError
from tidegauge.webapp.accounts.permissions import OutsideError
from tidegauge.webapp.api.reference import Operation, Row, curl
from tidegauge.webapp.api.saved_queries.selectors import published
from tidegauge.webapp.catalog import readers
from tidegauge.webapp.catalog.visible import Visible

# Where a state cannot be read now, its columns stand for its key.
NOT_READ = (BackendUnavailable, FindingError, MovedOnError, UnknownStateError, OutsideError)

ENTRIES_SHOWN = 10


@dataclass(frozen=True)
class OwnValues:
    """states: the names that the reader may choose from. state: the one that calls are filled in with."""

    visible: Visible
    states: Sequence[str]
    state: str

    @classmethod
    def of(cls, visible: Visible, asked: str) -> "OwnValues":
        """asked: the name of a state; the first one if the reader sees none of that name."""
        states = [each.name for each in visible.states()]
        return cls(visible, states, asked if asked in states else next(iter(states), ""))

    @cached_property
    def pipeline(self) -> str:
        return self.visible.pipeline_of(self.state).name if self.state else ""

    @cached_property
    def key(self) -> list[Any]:
        """Return the first key that the reader may read, as in JSON; the names of its columns if there is none."""
        try:
            found = readers.read(self._first_key)
        except NOT_READ:
            found = None
        return [f"<{column}>" for column in self.columns] if found is None else found

    @cached_property
    def _spec(self) -> StateSpec | None:
        return readers.read(lambda conn: readers.reader(conn, self.state)).spec if self.state else None

    @property
    def columns(self) -> list[str]:
        return list(self._spec.key) if self._spec else []

    def _first_key(self, conn: Any) -> list[Any] | None:
        reader = readers.reader(conn, self.state)
        page = reader.page(prefix=self.visible.scope.check_prefix(reader.spec, ()), limit=1, measures=[])
        return next((entry["key"] for entry in page.parsed()), None)

    def parameter(self, operation: Operation, row: Row) -> str:
        """Return the value of a parameter; empty if it is left to the reader."""
        if row.place == "path":
            return self._in_path(operation.path, row.name)
        if self._spec is None or "/states/" not in operation.path or not self._spec.key:
            return ""
        if row.name == "by":
            return next(iter(self._spec.key))
        return json.dumps(self.key, ensure_ascii=False) if row.name == "key" else ""

    def _in_path(self, path: str, name: str) -> str:
        if "/states/" in path:
            return self.state
        if "/pipelines/" in path:
            return self.pipeline
        if "/saved-queries/" in path:
            return next((str(getattr(query, name)) for query in published(self.visible.scope)), "")
        if "/maintenance/" in path:
            return next((str(run.id) for run in self.visible.runs(limit=1)), "")
        return ""

    def body(self, operation: Operation) -> str:
        """Return the body of a call with the reader's own state and key; else the example of the document."""
        assert operation.body is not None
        if self._spec is None:
            return operation.body.example
        make = BODIES.get(operation.id)
        return json.dumps(make(self), ensure_ascii=False) if make else operation.body.example


# By operation; of the others, which name no state, the example of the document is right as it is.
BODIES: Mapping[str, Callable[["OwnValues"], dict[str, Any]]] = {
    "look_up_state": lambda own: {"keys": [own.key]},
    "look_up_states": lambda own: {"lookups": [{"state": own.state, "keys": [own.key]}]},
    "filter_entries": lambda own: {"limit": ENTRIES_SHOWN},
    "filter_groups": lambda own: {"by": own.columns[:1], "limit": ENTRIES_SHOWN},
    "create_token": lambda own: {"states": [own.state], "lifetime_seconds": 600},
}


@dataclass(frozen=True)
class FilledIn:
    """A call as the page shows it. fields: its parameters, each with its value. body: empty if it has none."""

    operation: Operation
    fields: Sequence[tuple[Row, str]]
    body: str

    @classmethod
    def of(cls, operation: Operation, own: OwnValues | None) -> "FilledIn":
        """own: None for somebody who has not signed in."""
        fields = [(row, own.parameter(operation, row) if own else "") for row in operation.parameters]
        body = "" if operation.body is None else own.body(operation) if own else operation.body.example
        return cls(operation, fields, body)

    @property
    def address(self) -> str:
        path = self.operation.path
        for row, value in self.fields:
            if row.place == "path" and value:
                path = path.replace(f"{{{row.name}}}", quote(value, safe=""))
        query = urlencode([(row.name, value) for row, value in self.fields if row.place == "query" and value])
        return f"{self.operation.server}{path}{'?' if query else ''}{query}"

    @property
    def curl(self) -> str:
        return curl(self.operation, self.address, self.body)
