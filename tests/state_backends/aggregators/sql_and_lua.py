"""Runs an aggregator's SQL and Lua on values, to compare the results with its Python."""

import math
from fractions import Fraction

from psycopg import sql

from tidegauge.state_backends.backends.redis import scripts

ARITHMETIC = scripts.file_text("arithmetic")
PYTHON_TYPES = {"bigint": int, "double precision": float}


def in_lua(client, aggregator, stored, partial):
    """Fold as the merge on Redis does, where numbers are text and a missing value is nil."""
    sides = {"stored": stored, "partial": partial}
    columns = [(side, suffix) for side in sides for suffix in aggregator.columns]
    names = {
        f"{side}_{suffix}" if suffix else side: f"given({place})" for place, (side, suffix) in enumerate(columns, 1)
    }
    # An echo is the text that a field would hold.
    folded = [
        f"redis.call('ECHO', {aggregator.fold_lua[suffix].format(**names)} or '')" for suffix in aggregator.columns
    ]
    given = "local function given(place) return ARGV[place] ~= '' and ARGV[place] or nil end"
    values = [sides[side][suffix] for side, suffix in columns]
    script = f"{ARITHMETIC}\n{given}\nreturn {{{', '.join(folded)}}}"
    texts = client.eval(script, 0, *("" if value is None else repr(value) for value in values))
    return {
        suffix: PYTHON_TYPES[sql_type](text) if text else None
        for (suffix, sql_type), text in zip(aggregator.columns.items(), texts, strict=True)
    }


def in_sql(conn, aggregator, template, **sides):
    names = {
        f"{side}_{suffix}" if suffix else side: typed(value[suffix], sql_type)
        for side, value in sides.items()
        for suffix, sql_type in aggregator.columns.items()
    }
    return conn.execute(sql.SQL("SELECT {}").format(sql.SQL(template).format(**names))).fetchone()[0]


def typed(value, sql_type):
    """Return the value as a column of a state's table has it: text is in byte order there."""
    collation = sql.SQL(' COLLATE "C"' if sql_type == "text" else "")
    return sql.SQL("{}::{}").format(sql.Literal(value), sql.SQL(sql_type)) + collation


def same(left, right, rounded=False):
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[name], right[name], rounded) for name in left)
    if rounded and None not in (left, right):
        return math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-9)
    if type(left) is int and type(right) is float:
        # JSON from jsonb shows a large double without a point.
        left = float(left)
    # Only a NaN differs from itself.
    return left == right or (left != left and right != right)


def moments(numbers):
    """Return the partial of a variance, each part the double that is nearest to the exact value."""
    if not numbers:
        return {"count": 0, "mean": None, "m2": None}
    exact = [Fraction(number) for number in numbers]
    mean = sum(exact) / len(exact)
    return {"count": len(exact), "mean": float(mean), "m2": float(sum((x - mean) ** 2 for x in exact))}
