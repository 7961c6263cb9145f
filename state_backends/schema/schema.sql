-- What Tidemark keeps beside the states: who may write, what is open, what is committed, what exists.
-- Installed by state_backends.schema.install; every statement may run again.

CREATE SCHEMA IF NOT EXISTS tidemark;
CREATE SCHEMA IF NOT EXISTS tidemark_state;      -- a table per state
CREATE SCHEMA IF NOT EXISTS tidemark_live;       -- a view per state: committed, unexpired, finished
CREATE SCHEMA IF NOT EXISTS tidemark_changelog;  -- a table per state that asked for one
CREATE SCHEMA IF NOT EXISTS tidemark_shadow_state;      -- successors of states, while they are filled
CREATE SCHEMA IF NOT EXISTS tidemark_shadow_changelog;

CREATE TABLE IF NOT EXISTS tidemark.schema_version (
    version      integer PRIMARY KEY,
    installed_at timestamptz NOT NULL DEFAULT now()
);
ALTER TABLE tidemark.schema_version ADD COLUMN IF NOT EXISTS digest text;  -- of this page

-- The ledger's row. Executors hold it FOR SHARE while they write, so nothing may touch it while a batch is open.
CREATE TABLE IF NOT EXISTS tidemark.pipeline (
    name               text COLLATE "C" PRIMARY KEY,
    description        text NOT NULL DEFAULT '',
    spout              text NOT NULL DEFAULT 'opaque',
    fence              bigint NOT NULL DEFAULT 0,
    checkpoint_id      text,
    committed_txid     bigint NOT NULL DEFAULT 0,
    committed_attempt  integer NOT NULL DEFAULT 0,
    committed_batch_id bigint NOT NULL DEFAULT -1,  -- Spark's number of the committed batch; -1: none yet
    committed_time     timestamptz,                 -- its batch time
    open_txid          bigint,                      -- null: no batch is open
    open_attempt       integer,
    open_batch_id      bigint,
    open_time          timestamptz,
    created_at         timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);

-- The pipeline whose states this one is feeding anew, to take its place; see succession.py.
ALTER TABLE tidemark.pipeline
    ADD COLUMN IF NOT EXISTS reprocesses text COLLATE "C" REFERENCES tidemark.pipeline ON DELETE CASCADE;

CREATE TABLE IF NOT EXISTS tidemark.batch (
    pipeline     text COLLATE "C" NOT NULL REFERENCES tidemark.pipeline ON DELETE CASCADE,
    txid         bigint NOT NULL,
    attempt      integer NOT NULL,
    batch_id     bigint NOT NULL,
    fence        bigint NOT NULL,
    batch_time   timestamptz NOT NULL,
    started_at   timestamptz NOT NULL,   -- of the latest attempt
    committed_at timestamptz,            -- null: open
    offsets      jsonb,
    rows_in      bigint,
    keys_written jsonb,                  -- state name to number of keys
    dead_letters bigint NOT NULL DEFAULT 0,
    id           bigint GENERATED ALWAYS AS IDENTITY UNIQUE,  -- for readers that want a key of one column
    PRIMARY KEY (pipeline, txid)
) WITH (fillfactor = 70);
ALTER TABLE tidemark.batch
    ADD COLUMN IF NOT EXISTS late bigint NOT NULL DEFAULT 0,     -- events that came after the watermark
    ADD COLUMN IF NOT EXISTS dropped bigint NOT NULL DEFAULT 0,  -- those of them that were left out
    ADD COLUMN IF NOT EXISTS tasks jsonb,                        -- state name to {"tasks": n, "largest": most keys of one}
    ADD COLUMN IF NOT EXISTS watermark timestamptz,              -- event time that the batch had reached
    ADD COLUMN IF NOT EXISTS marks jsonb NOT NULL DEFAULT '{}',  -- the same of each of its streams
    ADD COLUMN IF NOT EXISTS metrics jsonb NOT NULL DEFAULT '{}',  -- Spark's own: durations in ms, rows, rates
    -- Of all batches up to this one, so that nobody has to add them up, nor to keep them all; null: from before version 3.
    ADD COLUMN IF NOT EXISTS total_dead_letters bigint,
    ADD COLUMN IF NOT EXISTS total_late bigint,
    ADD COLUMN IF NOT EXISTS total_dropped bigint,
    -- State to the ttl that all attempts at the batch go by, whatever is set meanwhile; null: from before version 4.
    ADD COLUMN IF NOT EXISTS ttls jsonb;

-- What the driver says of itself; apart from the ledger's row, which it must not touch while a batch is open.
CREATE TABLE IF NOT EXISTS tidemark.driver (
    pipeline   text COLLATE "C" PRIMARY KEY REFERENCES tidemark.pipeline ON DELETE CASCADE,
    host       text NOT NULL,
    pid        integer NOT NULL,
    since      timestamptz NOT NULL,
    status     text NOT NULL,            -- starting, running, paused, restarting, stopped, finished, failed
    message    text NOT NULL DEFAULT '',
    progress   jsonb NOT NULL DEFAULT '{}',
    updated_at timestamptz NOT NULL
) WITH (fillfactor = 50);
ALTER TABLE tidemark.driver
    ADD COLUMN IF NOT EXISTS failures integer NOT NULL DEFAULT 0,  -- in a row, without a batch committed between
    ADD COLUMN IF NOT EXISTS max_failures integer,                 -- how many of them end it
    ADD COLUMN IF NOT EXISTS next_try_at timestamptz;              -- null: unless it restarts

-- What people wish of a driver; apart from what it says of itself, and kept while there is none. No row: it may run.
CREATE TABLE IF NOT EXISTS tidemark.pipeline_wish (
    pipeline     text COLLATE "C" PRIMARY KEY REFERENCES tidemark.pipeline ON DELETE CASCADE,
    paused       boolean NOT NULL,
    requested_by text NOT NULL,
    requested_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE IF NOT EXISTS tidemark.state (
    name        text COLLATE "C" PRIMARY KEY,
    pipeline    text COLLATE "C" NOT NULL REFERENCES tidemark.pipeline ON DELETE CASCADE,
    definition  jsonb NOT NULL,
    version     integer NOT NULL DEFAULT 1,       -- grows with each change of the definition
    ttl         interval,
    guarantee   text NOT NULL,
    since_txid  bigint NOT NULL DEFAULT 0,        -- the state was added after this batch and lacks what came before
    oldest_txid bigint NOT NULL DEFAULT 0,        -- reads in the past reach back to here
    created_at  timestamptz NOT NULL DEFAULT now()
);
-- States that are being fed anew, as they were declared when that was begun.
CREATE TABLE IF NOT EXISTS tidemark.successor_state (
    name       text COLLATE "C" PRIMARY KEY,
    pipeline   text COLLATE "C" NOT NULL REFERENCES tidemark.pipeline ON DELETE CASCADE,
    definition jsonb NOT NULL
);
-- measures_since: those that were added later, and after which batch: they lack what came before.
ALTER TABLE tidemark.state
    ADD COLUMN IF NOT EXISTS measures_since jsonb NOT NULL DEFAULT '{}',
    -- {"ttl": .., "changelog": ..}: what the code says, and what people have set instead; see schema/edits.py.
    ADD COLUMN IF NOT EXISTS declared jsonb NOT NULL DEFAULT '{}',
    ADD COLUMN IF NOT EXISTS edits jsonb NOT NULL DEFAULT '{}';

-- Input that could not be counted. Rows of a batch that is not committed do not count yet.
CREATE TABLE IF NOT EXISTS tidemark.dead_letter (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pipeline    text COLLATE "C" NOT NULL REFERENCES tidemark.pipeline ON DELETE CASCADE,
    txid        bigint NOT NULL,
    state       text COLLATE "C" NOT NULL DEFAULT '',  -- the state that could not take it; empty: the source
    part        integer NOT NULL DEFAULT 0,            -- the task that wrote it, so that its retry replaces it
    source      text NOT NULL,                         -- the file, topic or table
    line_number bigint,
    line        text NOT NULL,
    reason      text NOT NULL,
    at          timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX IF NOT EXISTS dead_letter_by_batch ON tidemark.dead_letter (pipeline, txid);

CREATE TABLE IF NOT EXISTS tidemark.maintenance_run (
    id               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind             text NOT NULL CHECK (kind IN ('compaction', 'expiry')),
    state            text COLLATE "C" NOT NULL REFERENCES tidemark.state ON DELETE CASCADE,
    status           text NOT NULL DEFAULT 'queued'
                     CHECK (status IN ('queued', 'running', 'done', 'failed', 'cancelled')),
    requested_by     text NOT NULL,
    requested_at     timestamptz NOT NULL DEFAULT now(),
    started_at       timestamptz,
    finished_at      timestamptz,
    cancel_requested boolean NOT NULL DEFAULT false,
    progress         jsonb NOT NULL DEFAULT '{}',
    before           jsonb NOT NULL DEFAULT '{}',
    after            jsonb NOT NULL DEFAULT '{}',
    error            text NOT NULL DEFAULT ''
) WITH (fillfactor = 50);
CREATE INDEX IF NOT EXISTS maintenance_run_by_state ON tidemark.maintenance_run (state, id DESC);

-- Live: see state_backends/live.py, whose is_live() says the same in Python. The age is compared, not a date reckoned:
-- a day added to a timestamptz is 23 or 25 hours where the session's time zone changes its clocks.
CREATE OR REPLACE FUNCTION tidemark.is_live(removed boolean, updated_at timestamptz, ttl interval, clock timestamptz)
    RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN NOT removed AND (ttl IS NULL OR clock - updated_at < ttl);

-- By which ttl the open batch takes the rows of a state, or the next one if none is open.
CREATE OR REPLACE FUNCTION tidemark.ttl_at_hand(state text)
    RETURNS interval LANGUAGE sql STABLE
    RETURN (
        SELECT CASE WHEN b.ttls ? s.name THEN (b.ttls ->> s.name)::interval ELSE s.ttl END
        FROM tidemark.state s JOIN tidemark.pipeline p ON p.name = s.pipeline
        LEFT JOIN tidemark.batch b ON b.pipeline = p.name AND b.txid = p.open_txid
        WHERE s.name = state
    );

-- Whether a session holds the advisory lock of two numbers that pg_advisory_lock(lock_class, hashtext(name)) takes.
CREATE OR REPLACE FUNCTION tidemark.is_locked(lock_class integer, name text)
    RETURNS boolean LANGUAGE sql STABLE
    RETURN EXISTS (
        SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database
        WHERE l.locktype = 'advisory' AND l.granted AND d.datname = current_database() AND l.classid = lock_class::oid
          AND l.objid::bigint = (hashtext(name)::bigint & 4294967295) AND l.objsubid = 2
    );

-- A driver holds its pipeline's lock for as long as its session lives.
CREATE OR REPLACE FUNCTION tidemark.has_driver(pipeline text)
    RETURNS boolean LANGUAGE sql STABLE
    RETURN tidemark.is_locked(7103845, pipeline);

-- The logs of synchronizers. A log's head is the condition of every append: one of n racing clients moves it on.
CREATE TABLE IF NOT EXISTS tidemark.synchronizer (
    name        text COLLATE "C" PRIMARY KEY,
    revision    bigint NOT NULL DEFAULT 0,  -- how many records were ever appended
    mark        bigint,                     -- where the newest compacted record is; null: none yet
    oldest      bigint NOT NULL DEFAULT 0,  -- records before this one are gone
    appended_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);

CREATE TABLE IF NOT EXISTS tidemark.synchronizer_log (
    synchronizer text COLLATE "C" NOT NULL REFERENCES tidemark.synchronizer ON DELETE CASCADE,
    revision     bigint NOT NULL,           -- how many records came before this one
    record       json NOT NULL,             -- json and not jsonb: read back as it was written, for every reader alike
    writer       uuid NOT NULL,
    sequence     bigint NOT NULL,           -- of the writer's appends; a repeated one is the same append
    PRIMARY KEY (synchronizer, revision),
    UNIQUE (synchronizer, writer, sequence)
);

-- The logs of key-value stores, each with one writer: a second one meets the positions of the first.
CREATE TABLE IF NOT EXISTS tidemark.key_value_log (
    store    text COLLATE "C" NOT NULL,
    position bigint NOT NULL,               -- counts from 1
    key      jsonb NOT NULL,                -- the parts of the key; floats, times, dates and uuids as text
    value    json,                          -- null: the key was deleted; json and not jsonb: read back as written
    at       timestamptz NOT NULL,
    PRIMARY KEY (store, position)
);

INSERT INTO tidemark.schema_version (version) VALUES (4) ON CONFLICT DO NOTHING;
