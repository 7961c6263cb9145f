"""Past: which version of each row a reader as of an earlier batch sees, and from which batch on that can be told.

A changelog has every version since the batch that compaction went up to. Without one there is what a row still carries:
its version, an opaque row's version before, and that there was none earlier where nothing can have been forgotten.
Each key then has a reach of its own, and one that cannot be told makes an answer an error, not a guess.
"""

from psycopg import sql

from state_backends.table import StateTable, columns, commas
from state_backends.visible import chosen

# The ledger's row as it was when batch %s was the committed one, so that what asks for committed versions gets those of
# that batch. first_txid: the oldest batch whose time is known. retried_txid: the newest batch since that was tried
# again, and whose revert may have left rows without the version before.
LEDGER_THEN = sql.SQL(
    "(SELECT q.name, q.open_txid, q.committed_txid AS newest_txid, a.txid AS committed_txid, "
    "coalesce(b.attempt, 0) AS committed_attempt, b.batch_time AS committed_time, "
    "(SELECT coalesce(nullif(min(o.txid), 1), 0) FROM tidemark.batch o WHERE o.pipeline = q.name) AS first_txid, "
    "(SELECT max(r.txid) FROM tidemark.batch r WHERE r.pipeline = q.name AND r.txid > a.txid AND r.attempt > 1) "
    "AS retried_txid FROM tidemark.pipeline q CROSS JOIN (SELECT %s::bigint AS txid) a "
    "LEFT JOIN tidemark.batch b ON b.pipeline = q.name AND b.txid = a.txid)"
)

# A reader's clock then: the time of that batch.
TTL, THEN = sql.SQL("s.ttl"), sql.SQL("p.committed_time")

TRUE = sql.SQL("true")

RESULTS = sql.SQL("f.results::text")

# From which batch on a row can be told, or null; a name that no column of a state can have.
REACH = sql.Identifier("told from")


def answer_then(table: StateTable, results: sql.Composed, shown: sql.Composable = RESULTS) -> sql.Composed:
    """Return the statement for `results`, which has `reach` and what is `shown`; its first parameter is the batch.

    Columns: txid, attempt and time of that batch, what is shown, the newest committed txid, and the oldest one that
    the same question can be answered for.
    """
    return sql.SQL(
        "SELECT p.committed_txid, p.committed_attempt, p.committed_time, {shown}, p.newest_txid, "
        "greatest({reach}, f.{reach_of_rows}) FROM tidemark.state s JOIN {ledger} p ON p.name = s.pipeline "
        "CROSS JOIN LATERAL ({results}) f WHERE s.name = %s"
    ).format(reach=_reach_of_state(table), reach_of_rows=REACH, ledger=LEDGER_THEN, results=results, shown=shown)


def version_of_key(table: StateTable) -> sql.Composed:
    """Return a sub-select of the version that key `k` had then, and its reach; no row, or nulls, where it had none."""
    if not table.spec.changelog:
        return carried(table, table.same_key("k", "t"))
    return sql.SQL(
        "(SELECT {version}, NULL::bigint AS {reach} FROM {log} t WHERE {same} AND t.txid <= p.committed_txid "
        "ORDER BY t.txid DESC LIMIT 1)"
    ).format(version=columns(table.version, "t"), log=table.changelog, same=table.same_key("k", "t"), reach=REACH)


def versions_then(table: StateTable, where: sql.Composable) -> sql.Composed:
    """Return a sub-select of the version that every key had then, and its reach. where: a condition on row `t`."""
    return newest_logged(table, where) if table.spec.changelog else carried(table, where)


def newest_logged(table: StateTable, where: sql.Composable) -> sql.Composed:
    """Return the same of the changelog, key after key."""
    return sql.SQL(
        "(SELECT DISTINCT ON ({key}) {key}, {version}, NULL::bigint AS {reach} FROM {log} t "
        "WHERE t.txid <= p.committed_txid AND {where} ORDER BY {key}, t.txid DESC)"
    ).format(
        key=columns(table.key, "t"),
        version=columns([*table.version, "txid"], "t"),
        reach=REACH,
        log=table.changelog,
        where=where,
    )


def carried(table: StateTable, where: sql.Composable) -> sql.Composed:
    """Return the same of what the rows still carry."""
    picked: list[sql.Composable] = [
        sql.SQL("{} AS {}").format(chosen(name, table.keeps_previous), sql.Identifier(name))
        for name in [*table.version, *(["txid"] if table.keeps_txid else [])]
    ]
    if not table.keeps_txid:
        picked.append(sql.SQL("NULL::bigint AS txid"))
    return sql.SQL("(SELECT {key}, {picked}, {told} AS {reach} FROM {table} t WHERE {where})").format(
        key=columns(table.key, "t"),
        picked=commas(picked),
        told=_reach_of_row(table),
        reach=REACH,
        table=table.name,
        where=where,
    )


def _reach_of_state(table: StateTable) -> sql.SQL:
    """Return the batch from which on the absence of a row can be told, over `s` and `p`; no key has a longer reach."""
    if table.keeps_txid:
        return sql.SQL("greatest(s.oldest_txid, s.since_txid, p.first_txid)")
    # Nothing says which batch a row is from. Unless a batch is open, it is the committed one or before.
    return sql.SQL("greatest(s.oldest_txid, s.since_txid, p.first_txid, coalesce(p.open_txid, p.newest_txid))")


def _reach_of_row(table: StateTable) -> sql.SQL:
    """Return the batch from which on row `t` can be told; null where it is as far back as the state."""
    if not table.keeps_txid:
        return sql.SQL("NULL::bigint")
    if not table.keeps_previous:
        return sql.SQL("t.txid")
    return sql.SQL("coalesce(t.prev_txid, CASE WHEN p.retried_txid > t.txid THEN t.txid END)")
