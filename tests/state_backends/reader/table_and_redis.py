"""Twins: a pipeline feeds a state in a table and its twin in Redis, so that both readers can be asked the same."""

from dataclasses import replace
from datetime import timedelta

from tests.state_backends.feed import Feed, let_time_pass
from tidegauge.state_backends import Changelog, LoggedMap, PostgresBackingMap, RedisBackingMap, state_reader
from tidegauge.state_backends.ledger.batch import lock_fence
from tidegauge.state_backends.maps import MAPS
from tidegauge.state_backends.maps.updaters import Fold, Replace


class TableAndRedisFeed(Feed):
    """Feeds a state in a table and its twin in Redis with the same rows."""

    def __init__(self, conn, client, spec, **options):
        self.client = client
        self.table_spec, self.redis_spec = spec, replace(spec, name=f"{spec.name}_r", backend="redis")
        super().__init__(conn, [self.table_spec, self.redis_spec], **options)
        self.rows_in_redis = RedisBackingMap(client, self.redis_spec)

    def write(self, batch, rows, gone=()):
        keys = [tuple(row[name] for name in self.table_spec.key) for row in rows]
        for spec in self.specs:
            with self.conn.transaction():
                lock_fence(self.conn, batch)
                counts = MAPS[spec.kind](self.logged(spec))
                counts.begin_commit(batch.txid, at=batch.batch_time)
                partials = [{name: row[name] for name in spec.partial_columns} for row in rows]
                updaters = [Fold(spec, partial) for partial in partials]
                counts.multi_update([*keys, *gone], [*updaters, *[Replace(None)] * len(gone)])

    def commit(self, *rows, gone=()):
        batch = self.begin(self.next_batch_id())
        self.write(batch, rows, gone)
        self.ledger.commit(batch)
        self.rows_in_redis.publish(batch.txid)
        return batch

    def wait(self, interval):
        let_time_pass(self.conn, [self.table_spec], self.pipeline, interval)
        for name in self.client.scan_iter(f"tidegauge:{{{self.redis_spec.name}}}:row:*"):
            for time in ("updated_at", "prev_updated_at"):
                if self.client.hexists(name, time):
                    self.client.hincrby(name, time, -(interval // timedelta(microseconds=1)))
        if self.redis_spec.changelog:
            self.conn.execute(
                f"UPDATE tidegauge_changelog.{self.redis_spec.name} SET updated_at = updated_at - %s", [interval]
            )

    def readers(self):
        return [state_reader(self.conn, spec) for spec in self.specs]

    def logged(self, spec):
        backing = PostgresBackingMap(self.conn, spec) if spec is self.table_spec else self.rows_in_redis
        return LoggedMap(backing, Changelog(self.conn, spec)) if spec.changelog else backing
