-- States and pipelines that were retired or renamed: what became of each, for those who still ask for it.
CREATE TABLE tidegauge.former (
    id            bigint GENERATED ALWAYS AS IDENTITY UNIQUE,  -- for readers that want a key of one column
    kind          text NOT NULL CHECK (kind IN ('state', 'pipeline')),
    name          text COLLATE "C" NOT NULL,
    fate          text NOT NULL CHECK (fate IN ('kept', 'archived', 'dropped', 'renamed')),
    detail        text NOT NULL DEFAULT '',        -- the folder of the archive, or the new name
    pipeline      text COLLATE "C" NOT NULL,       -- that fed it, or was it
    txid          bigint NOT NULL,                 -- the batch that was committed
    definition    jsonb,                           -- of a state
    checkpoint_id text,                            -- of a pipeline
    unfinished    boolean NOT NULL DEFAULT false,  -- something outside of this database has still to go
    at            timestamptz NOT NULL DEFAULT clock_timestamp(),
    by            text NOT NULL DEFAULT '',
    PRIMARY KEY (kind, name)
);
