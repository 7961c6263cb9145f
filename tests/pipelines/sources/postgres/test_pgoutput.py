"""The decoder with bytes written by hand, as the manual describes them; other tests decode what a server sends."""

import struct

import pytest

from tidegauge.pipelines.sources.postgres.pgoutput import UNCHANGED, Relation, as_number, as_text, decode

COMMIT_MICROS_SINCE_2000 = 5


def begin(commit_lsn=500, xid=7):
    return b"B" + struct.pack(">qqI", commit_lsn, COMMIT_MICROS_SINCE_2000, xid)


def relation(number=1, columns=(("id", 1), ("note", 0))):
    head = b"R" + struct.pack(">I", number) + b"public\0t\0d" + struct.pack(">H", len(columns))
    return head + b"".join(bytes([key]) + name.encode() + b"\0" + struct.pack(">Ii", 25, -1) for name, key in columns)


def values(*texts):
    def one(text):
        if text is None:
            return b"n"
        return b"u" if text is UNCHANGED else b"t" + struct.pack(">I", len(text.encode())) + text.encode()

    return struct.pack(">H", len(texts)) + b"".join(map(one, texts))


def insert(*texts):
    return b"I" + struct.pack(">I", 1) + b"N" + values(*texts)


def decoded(*messages):
    return list(decode(enumerate([begin(), relation(), *messages], start=100)))


def test_an_insert_has_its_values_its_lsn_and_its_transaction():
    [change] = decoded(insert("1", "grüße"))

    assert (change.kind, change.new, change.old, change.lsn) == ("insert", ["1", "grüße"], None, 102)
    assert change.transaction == (500, 7, 946_684_800_000_000 + COMMIT_MICROS_SINCE_2000)
    assert change.relation == Relation("public", "t", ("id", "note"), ("id",))


@pytest.mark.parametrize(("tag", "is_whole"), [(b"K", False), (b"O", True)])
def test_an_update_has_the_old_row_and_whether_it_is_whole(tag, is_whole):
    [change] = decoded(b"U" + struct.pack(">I", 1) + tag + values("1", None) + b"N" + values("2", UNCHANGED))

    assert (change.old, change.new, change.old_is_whole) == (["1", None], ["2", UNCHANGED], is_whole)


def test_a_delete_has_an_old_row_alone():
    [change] = decoded(b"D" + struct.pack(">I", 1) + b"K" + values("1", None))

    assert (change.kind, change.old, change.new) == ("delete", ["1", None], None)


def test_a_truncate_is_reported_for_each_known_table():
    changes = decoded(b"T" + struct.pack(">IB", 2, 0) + struct.pack(">II", 1, 9))

    assert [change.kind for change in changes] == ["truncate"]


def test_a_table_that_was_altered_is_read_as_it_is_from_then_on():
    changes = decoded(insert("1", "a"), relation(columns=(("id", 1), ("note", 0), ("more", 0))), insert("2", "b", None))

    assert [change.relation.columns for change in changes] == [("id", "note"), ("id", "note", "more")]


def test_an_empty_text_is_not_null():
    [change] = decoded(insert("", None))

    assert change.new == ["", None]


def test_messages_of_other_kinds_are_skipped():
    assert decoded(b"O" + b"\0" * 9, b"Y", b"M", b"C" + b"\0" * 25) == []


def test_a_message_of_another_version_is_refused():
    with pytest.raises(ValueError, match=r"message b'S' at LSN 0/66 is not of pgoutput's protocol version 1"):
        decoded(b"S")


@pytest.mark.parametrize(("text", "number"), [("0/0", 0), ("0/16B3748", 0x16B3748), ("A/FFFFFFFF", 0xAFFFFFFFF)])
def test_an_lsn_is_written_as_postgresql_writes_it(text, number):
    assert (as_text(number), as_number(text)) == (text, number)
