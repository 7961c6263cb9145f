-- What tells that the ledger, a checkpoint, a source or a store has gone back, and who is changing a state's tables.

-- Epochs: the incarnations of the ledger. The newest row is the current one; rows are inserted and never updated.
CREATE TABLE tidemark.epoch (
    number            integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    epoch             text NOT NULL UNIQUE,               -- random
    reason            text NOT NULL,
    made_at           timestamptz NOT NULL DEFAULT clock_timestamp(),
    made_by           xid8 NOT NULL DEFAULT pg_current_xact_id()  -- differs from xmin once the row was restored or copied
);
ALTER TABLE tidemark.pipeline
    ADD COLUMN epoch text NOT NULL DEFAULT '',  -- of the driver that acquired the pipeline last
    ADD COLUMN token text NOT NULL DEFAULT '';  -- random, of each acquisition: fences of two epochs may be equal

-- The input of a batch.
ALTER TABLE tidemark.batch ADD COLUMN epoch text NOT NULL DEFAULT '';

-- Time.

-- The reprocess of a pipeline.

-- Work on a state's tables.

-- How far a state is fed.

-- The keys that an open batch writes.

-- Audits.
