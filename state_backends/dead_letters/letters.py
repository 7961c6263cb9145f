"""Dead letters: input that could not be processed, stored with its place and the reason, so that nothing is lost.

Like rows they belong to a batch: a retry replaces them, and they count once the batch is committed. Letters of a source
keep the raw record, a JSON object from which the source reads it again (replay.py).
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import psycopg

from tidegauge.state_backends.errors import FoldRangeError
from tidegauge.state_backends.ledger.batch import Batch
from tidegauge.state_backends.spec.row import Key
from tidegauge.state_backends.spec.state_spec import StateSpec

# Enough to recognise a line. Longer text is cut, because a corrupt file may be a single line of gigabytes.
MAX_LINE_CHARACTERS = 10_000

# Limit of a raw record as JSON. A message of Kafka's default maximum size in base64 fits; a larger record is not kept.
MAX_RECORD_BYTES = 2 * 1024 * 1024

# The key of bytes that are not text in a record: {"base64": ".."}.
BASE64 = "base64"

# SQL of a reason's pattern: values, quoted text, numbers and times become `…`, so that one cause has one pattern. The
# value at the end first, without the regular expressions, because most reasons differ in nothing else.
REASON_HEAD = """
CASE WHEN strpos(left(l.reason, 500), ', got ') > 0 THEN split_part(left(l.reason, 500), ', got ', 1) || ', got …'
ELSE left(l.reason, 500) END
"""
PATTERN_OF_HEAD = r"""
regexp_replace(regexp_replace(l.head, '(?<!\w)(''[^'']*''|"[^"]*")(?!\w)', '…', 'g'),
    '(?<!\w)[-+]?[0-9][0-9A-Fa-f.:+TZ-]*', '…', 'g')
"""
REASON_PATTERN = f"(SELECT {PATTERN_OF_HEAD} FROM (SELECT {REASON_HEAD} AS head) l)"  # noqa: S608  fixed texts

# SQL condition that a reason has the pattern %(pattern)s. The text before the first placeholder is compared too,
# because that is cheap and spares most letters the regular expressions.
HAS_PATTERN = f"(starts_with(l.reason, split_part(%(pattern)s, '…', 1)) AND {REASON_PATTERN} = %(pattern)s)"

LOST_INPUT = """
INSERT INTO tidegauge.dead_letter (pipeline, txid, source, line_number, line, reason)
SELECT %(pipeline)s, %(txid)s, %(source)s, %(line_number)s, %(line)s, %(reason)s
WHERE NOT EXISTS (SELECT FROM tidegauge.dead_letter
                  WHERE pipeline = %(pipeline)s AND txid = %(txid)s AND source = %(source)s AND reason = %(reason)s)
"""

# Late events that were left out are not rejected input; their letters have no state and a negative part.
REJECTED = """
SELECT count(*) OVER (), reason FROM tidegauge.dead_letter
WHERE pipeline = %(pipeline)s AND txid = ANY(%(txids)s) AND replay_txid IS NULL AND NOT (state = '' AND part < 0)
    AND (%(state)s::text IS NULL OR state = %(state)s)
ORDER BY id LIMIT 1
"""


@dataclass(frozen=True)
class DeadLetter:
    """A line that could not be parsed, or a group that a state can neither store nor fold.

    source: where it comes from. line: its text, cut at MAX_LINE_CHARACTERS when stored. line_number: counts from 1.
    key: the group's key, as the state has it; not stored. record: the raw input as JSON; None if none is kept.
    """

    source: str
    line: str
    reason: str
    line_number: int | None = None
    key: Key | None = None
    record: Mapping[str, Any] | None = None


def record_value(raw: bytes | None) -> Any:
    """Return bytes as a record stores them, without loss: as text if PostgreSQL can store that, else as base64."""
    if raw is None:
        return None
    try:
        text = bytes(raw).decode()
    except UnicodeDecodeError:
        text = "\0"  # stored as base64, like text with a NUL
    return {BASE64: b64encode(raw).decode()} if "\0" in text else text


def record_bytes(value: Any) -> bytes | None:
    """Return the bytes that `record_value` was given."""
    if isinstance(value, Mapping):
        return b64decode(value[BASE64])
    return None if value is None else str(value).encode()


def refused_fold(spec: StateSpec, key: Key, partial: Mapping[str, Any], error: FoldRangeError) -> DeadLetter:
    """Return the dead letter of a key's share of a batch, with all that is needed to count it by hand.

    partial: stored column to the batch's value.
    """
    group = dict(zip(spec.key, key, strict=True)) | dict(partial)
    reason = f"{error}; the key keeps the value from before the batch"
    return DeadLetter(f"state {spec.name}", json.dumps(group, default=str), reason, key=key)


def refusal(spec: StateSpec, stored: Mapping[str, Any] | None, partial: Mapping[str, Any]) -> FoldRangeError | None:
    """Return the reason why a key's partial cannot be folded into the stored value; None if it can."""
    try:
        spec.fold(stored, partial)
    except FoldRangeError as error:
        return error
    return None


def write_dead_letters(
    conn: psycopg.Connection, batch: Batch, letters: Iterable[DeadLetter], *, state: str = "", part: int = 0
) -> int:
    """Replace the dead letters of (batch, state, part) by `letters`. Returns their number.

    Runs inside the caller's transaction, which has called `lock_fence`. state: empty for the source itself. part: the
    task's number.
    """
    place = [batch.pipeline, batch.txid, state, part]
    # Without the lock, two concurrent runs of one task would each delete the earlier rows and both insert theirs.
    conn.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"dead letters {place!r}"])
    conn.execute(
        "DELETE FROM tidegauge.dead_letter WHERE pipeline = %s AND txid = %s AND state = %s AND part = %s", place
    )
    count = 0
    with (
        conn.cursor() as cursor,
        cursor.copy(
            "COPY tidegauge.dead_letter (pipeline, txid, state, part, source, line_number, line, reason, record) "
            "FROM STDIN"
        ) as copy,
    ):
        for letter in letters:
            copy.write_row(
                [
                    *place,
                    storable(letter.source),
                    letter.line_number,
                    storable(letter.line),
                    storable(letter.reason),
                    _record_text(letter.record),
                ]
            )
            count += 1
    return count


class Rejected(NamedTuple):
    """How many letters there are, and the reason of the first."""

    number: int
    first_reason: str


def rejected_letters(
    conn: psycopg.Connection, pipeline: str, txids: Sequence[int], state: str | None = None
) -> Rejected | None:
    """Count the letters that batches have written; None if there are none. state: None: of all states and the sources.

    Letters of late events do not count, and neither do letters that were replayed since.
    """
    asked = {"pipeline": pipeline, "txids": list(txids), "state": state}
    row = conn.execute(REJECTED, asked).fetchone()
    return Rejected(*row) if row else None


def delete_dead_letters(conn: psycopg.Connection, batch: Batch) -> int:
    """Delete the dead letters of earlier attempts at this batch. Returns their number."""
    return conn.execute(
        "DELETE FROM tidegauge.dead_letter WHERE pipeline = %s AND txid = %s", [batch.pipeline, batch.txid]
    ).rowcount


def write_lost_input(conn: psycopg.Connection, pipeline: str, txid: int, letters: Iterable[DeadLetter]) -> int:
    """Add letters for input that was lost after committed batch `txid`, and count them there. Returns their number.

    The caller holds the pipeline. A letter that exists already is not written again, so the call can be repeated.
    """
    with conn.transaction():
        written = sum(
            conn.execute(LOST_INPUT, {"pipeline": pipeline, "txid": txid} | vars(letter)).rowcount for letter in letters
        )
        conn.execute(
            "UPDATE tidegauge.batch SET dead_letters = dead_letters + %(written)s, "
            "total_dead_letters = total_dead_letters + %(written)s WHERE pipeline = %(pipeline)s AND txid = %(txid)s",
            {"written": written, "pipeline": pipeline, "txid": txid},
        )
    return written


def _record_text(record: Mapping[str, Any] | None) -> str | None:
    # A record with a NUL character is not kept, because PostgreSQL's jsonb cannot hold one.
    text = None if record is None else json.dumps(record)
    return None if text is None or len(text) > MAX_RECORD_BYTES or "\\u0000" in text else text


def storable(text: str) -> str:
    """Return a text as PostgreSQL can store it: without NUL characters and unpaired surrogates, and cut."""
    return text[:MAX_LINE_CHARACTERS].replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()
