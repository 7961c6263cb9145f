"""A measure with stored columns of every type: what a changelog must store, including large values."""

from typing import ClassVar


class Wide:
    name = "wide"
    columns: ClassVar = {
        "": "bytea",
        "parts": "jsonb",
        "amount": "numeric",
        "text": "text",
        "at": "timestamptz",
        "mean": "double precision",
        "on": "boolean",
    }
    fold_sql: ClassVar = {}
    fold_lua: ClassVar = {}
    finish_sql = "length({stored})"
    result_type = "bigint"

    def partial(self):
        return dict.fromkeys(self.columns, "null")

    def fold(self, stored, partial):
        return dict(partial)

    def finish(self, stored):
        return len(stored[""])

    def arguments(self):
        return {}
