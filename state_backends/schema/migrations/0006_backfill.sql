-- The history that a pipeline counts, or has counted, before its own source: {"from": .., "upto": txid}; no upto: under
-- way; null: none.
ALTER TABLE tidegauge.pipeline ADD COLUMN backfill jsonb;
