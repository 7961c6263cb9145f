"""Replayed: dead letters that a batch reads again from their records, and what becomes of them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidegauge.pipelines.declare.rule_rows import RuledOut, row_text
from tidegauge.pipelines.sources.source import Parsed, Source
from tidegauge.state_backends.dead_letters.letters import DeadLetter
from tidegauge.state_backends.dead_letters.replay import RawLetter


class Reader(Protocol):
    """What reads dead letters again: a ReplayedSource, or SourceRows."""

    @property
    def records(self) -> str: ...

    def parse_again(self, spark: SparkSession, records: Sequence[Mapping[str, Any]]) -> Parsed: ...

    def dead_letters(self, parsed: DataFrame) -> Iterator[DeadLetter]: ...


class Replayed:
    """Dead letters of one place that a batch reads again, from their records.

    source: the one at that place; None if there is none now. reader: reads these records; None if the source cannot.
    """

    def __init__(
        self, spark: SparkSession, source: Source | None, reader: Reader | None, letters: Sequence[RawLetter]
    ) -> None:
        self.source = source
        self._spark = spark
        self._reader = reader
        self._letters = letters
        self._readable: list[RawLetter] = []
        self._parsed: Parsed | None = None
        if reader is not None:
            self._readable = [letter for letter in letters if letter.record.get("record") == reader.records]
            if self._readable:
                self._parsed = self._parse(self._readable)

    def joined(self, events: DataFrame, *, few: bool) -> DataFrame:
        """Return the source's events together with the letters' events that can be read now."""
        if self._parsed is None:
            return events
        good = self._parsed.good()
        joined = events.unionByName(good.coalesce(1) if few else good)
        return joined.coalesce(1) if few else joined

    def failed(self) -> list[tuple[int, str]]:
        """Return the letters that still cannot be read, with the reason."""
        found = [
            (letter.id, f"its source is no longer at place {letter.place} of the pipeline")
            for letter in self._letters
            if letter not in self._readable
        ]
        if self._parsed is None or self._reader is None:
            return found
        # Letters are matched by their record, because each record is parsed by itself and equal ones fail alike.
        reasons = {_canonical(bad.record): bad.reason for bad in self._reader.dead_letters(self._parsed.rows)}
        texts = ((letter.id, _canonical(letter.record)) for letter in self._readable)
        return found + [(number, reasons[text]) for number, text in texts if text in reasons]

    def rejected(self, ruled_out: RuledOut) -> list[tuple[int, str]]:
        """Return the letters that can be read now and break a rule, with the reason."""
        if self._parsed is None:
            return []
        # Letters are matched by their row, because a rule looks at each row by itself and equal ones break it alike.
        texts = {text for (text,) in ruled_out.rows(self._parsed.good()).collect()}
        if not texts:
            return []
        reason = ruled_out.rule.letter_reason
        return [(letter.id, reason) for letter, text in zip(self._readable, self._rows(), strict=True) if text in texts]

    def _parse(self, letters: Sequence[RawLetter]) -> Parsed:
        assert self._reader is not None
        return self._reader.parse_again(self._spark, [letter.record for letter in letters])

    def _rows(self) -> list[str | None]:
        """Return the row of each readable letter as JSON, None where it is bad or no event."""
        rows = _row_texts(self._parse(self._readable))
        if len(rows) == len(self._readable):
            return rows
        # Some record has no row. Each one is parsed alone to find out which, because rows do not name their record.
        return [next(iter(_row_texts(self._parse([letter]))), None) for letter in self._readable]


def _row_texts(parsed: Parsed) -> list[str | None]:
    """Return the rows as JSON in their order, None for a bad one."""
    row = row_text(parsed.columns)
    text = row if parsed.bad is None else F.when(F.col(parsed.bad).isNull(), row)
    return [text for (text,) in parsed.rows.select(text).collect()]


def _canonical(record: Mapping[str, Any] | None) -> str:
    return json.dumps(record, sort_keys=True)
