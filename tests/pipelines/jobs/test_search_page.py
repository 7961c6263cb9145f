"""docs/search_index.md: its SQL, run as written there."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.state_backends.feed import Feed
from tidegauge.state_backends import Latest, StateSpec

PAGE = (Path(__file__).parents[3] / "docs" / "search_index.md").read_text()
TEXTS = StateSpec("texts", key={"doc": "text"}, measures={"newest": Latest("text", by="changed_at")})


def texts(minute, **documents):
    at = datetime(2024, 1, 1, 0, minute, tzinfo=UTC)
    return [{"doc": doc, "newest_text": text, "newest_at_text": at} for doc, text in documents.items()]


@pytest.fixture
def feed(conn):
    return Feed(conn, [TEXTS], pipeline="texts")


def test_the_page_s_index_finds_what_is_committed_and_matches(conn, feed):
    create, search = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
    conn.execute(create)
    feed.run(texts(1, d1="The dog bites the man", d2="A cat and a dog", d3="Dogs, dogs and dogs", d4="a cat"))
    feed.run(texts(2, d2="A cat", d4=""))

    def found(words):
        return [doc for doc, _ in conn.execute(search, {"search": words})]

    assert (found("dogs"), found("dog -man"), found('"the man"'), found("cat")) == (
        ["d3", "d1"],
        ["d3"],
        ["d1"],
        ["d2"],
    )
    feed.apply(feed.begin(2), TEXTS, texts(3, d1="nothing", d4="a dog"))
    assert found("dogs") == ["d3"]


def test_the_page_s_search_uses_the_index(conn, feed):
    create, search = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
    conn.execute(create)
    feed.run(texts(1, **{f"d{n}": f"text number{n} of many" for n in range(2_000)}))
    conn.execute("ANALYZE tidegauge_state.texts")

    plan = "\n".join(line for (line,) in conn.execute(f"EXPLAIN {search}", {"search": "number7"}))

    assert "Bitmap Index Scan on texts_words" in plan


def test_the_declaration_on_the_page_is_the_one_tested_here():
    [declared] = re.findall(r"```python\n(TEXTS = .*?)\n```", PAGE)

    assert declared in Path(__file__).read_text()
