"""A table that a test writes to, and the reader of its rows and changes, driven as Spark drives it."""

from tidegauge.pipelines.sources.postgres.changes import PostgresChanges
from tidegauge.pipelines.sources.postgres.reader import PostgresChangeReader

TABLE = "CREATE TABLE public.t (id int PRIMARY KEY, note text)"


class Feed:
    def __init__(self, conn, url):
        self.conn, self.url = conn, url
        conn.execute(TABLE)
        self.declare()

    def declare(self, **options):
        options = {"url": self.url, "slot": f"s_{self.conn.info.backend_pid}", "max_changes_per_batch": 10} | options
        self.source = PostgresChanges("public.t", schema=None, **options)
        return self

    def execute(self, *statements):
        for statement in statements:
            self.conn.execute(statement)

    def reader(self):
        return PostgresChangeReader(self.source.reader_settings(("id", "note")))


def take(reader, start=None):
    """Plan a batch and read it twice; return its rows, once, and where it ends."""
    start = start or reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    once, again = read(reader, start, end), read(reader, start, end)
    assert once == again
    return once, end


def read(reader, start, end):
    found = []
    for part in reader.partitions(start, end):
        worker = PostgresChangeReader(reader.settings)
        found += [tuple(row.values()) for batch in worker.read(part) for row in batch.to_pylist()]
    return found


def drain(reader, start=None):
    """Read all there is, committing as Spark does; return (change, id, note) of all, and where it ends."""
    found, end = take(reader, start)
    while True:
        rows, further = take(reader, end)
        if further == end:
            return changes_of(found), end
        reader.commit(end)
        found, end = found + rows, further


def changes_of(rows):
    return [(row[2], row[0], row[1]) for row in rows]
