-- The schema of Tidegauge 0.1.0: pipelines, batches, states, dead letters, maintenance and logs.
-- Every statement is idempotent, because this file also upgrades databases that were installed before migrations had
-- numbers. Later migrations run once and need not be.

CREATE SCHEMA IF NOT EXISTS tidegauge;
CREATE SCHEMA IF NOT EXISTS tidegauge_state;      -- a table per state
CREATE SCHEMA IF NOT EXISTS tidegauge_live;       -- a view per state: committed and unexpired rows, with results
CREATE SCHEMA IF NOT EXISTS tidegauge_changelog;  -- a table per state that has a changelog
CREATE SCHEMA IF NOT EXISTS tidegauge_shadow_state;      -- tables that are filled to replace those of tidegauge_state
CREATE SCHEMA IF NOT EXISTS tidegauge_shadow_changelog;  -- and those of tidegauge_changelog

-- The ledger's row. Executors lock it FOR SHARE while they write, so an UPDATE waits until the open batch is written.
CREATE TABLE IF NOT EXISTS tidegauge.pipeline (
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

-- The pipeline whose states this one reprocesses, and which it replaces once it has caught up.
ALTER TABLE tidegauge.pipeline
    ADD COLUMN IF NOT EXISTS reprocesses text COLLATE "C" REFERENCES tidegauge.pipeline ON DELETE CASCADE;

CREATE TABLE IF NOT EXISTS tidegauge.batch (
    pipeline     text COLLATE "C" NOT NULL REFERENCES tidegauge.pipeline ON DELETE CASCADE,
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
ALTER TABLE tidegauge.batch
    ADD COLUMN IF NOT EXISTS late bigint NOT NULL DEFAULT 0,     -- events later than the watermark
    ADD COLUMN IF NOT EXISTS dropped bigint NOT NULL DEFAULT 0,  -- those of them that were not counted
    ADD COLUMN IF NOT EXISTS tasks jsonb,                        -- per state {"tasks": n, "largest": most keys of one}
    ADD COLUMN IF NOT EXISTS watermark timestamptz,              -- event time that the batch reached
    ADD COLUMN IF NOT EXISTS marks jsonb NOT NULL DEFAULT '{}',  -- the watermark of each of its streams
    ADD COLUMN IF NOT EXISTS metrics jsonb NOT NULL DEFAULT '{}',  -- Spark's: durations in ms, rows, rates
    -- Sums over all batches up to this one, so that older batches can be deleted; null: written before these columns.
    ADD COLUMN IF NOT EXISTS total_dead_letters bigint,
    ADD COLUMN IF NOT EXISTS total_late bigint,
    ADD COLUMN IF NOT EXISTS total_dropped bigint,
    -- State name to the ttl that all attempts at the batch use, even if it is edited between them.
    ADD COLUMN IF NOT EXISTS ttls jsonb;

-- The driver's status; not in tidegauge.pipeline, whose row must not be updated while a batch is open.
CREATE TABLE IF NOT EXISTS tidegauge.driver (
    pipeline   text COLLATE "C" PRIMARY KEY REFERENCES tidegauge.pipeline ON DELETE CASCADE,
    host       text NOT NULL,
    pid        integer NOT NULL,
    since      timestamptz NOT NULL,
    status     text NOT NULL,            -- starting, running, paused, restarting, stopped, finished, failed
    message    text NOT NULL DEFAULT '',
    progress   jsonb NOT NULL DEFAULT '{}',
    updated_at timestamptz NOT NULL
) WITH (fillfactor = 50);
ALTER TABLE tidegauge.driver
    ADD COLUMN IF NOT EXISTS failures integer NOT NULL DEFAULT 0,  -- consecutive: a committed batch resets them
    ADD COLUMN IF NOT EXISTS max_failures integer,                 -- the driver stops after this many
    ADD COLUMN IF NOT EXISTS next_try_at timestamptz;              -- null: it is not about to restart

-- Whether a pipeline should be paused, as requested by people; exists without a driver. No row: it may run.
CREATE TABLE IF NOT EXISTS tidegauge.pipeline_wish (
    pipeline     text COLLATE "C" PRIMARY KEY REFERENCES tidegauge.pipeline ON DELETE CASCADE,
    paused       boolean NOT NULL,
    requested_by text NOT NULL,
    requested_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE IF NOT EXISTS tidegauge.state (
    name        text COLLATE "C" PRIMARY KEY,
    pipeline    text COLLATE "C" NOT NULL REFERENCES tidegauge.pipeline ON DELETE CASCADE,
    definition  jsonb NOT NULL,
    version     integer NOT NULL DEFAULT 1,       -- grows with each change of the definition
    ttl         interval,
    guarantee   text NOT NULL,
    since_txid  bigint NOT NULL DEFAULT 0,        -- the state was added after this batch and lacks earlier input
    oldest_txid bigint NOT NULL DEFAULT 0,        -- the oldest batch that as-of reads can reach
    created_at  timestamptz NOT NULL DEFAULT now()
);
-- States that are being reprocessed, as they were declared when the reprocess began.
CREATE TABLE IF NOT EXISTS tidegauge.successor_state (
    name       text COLLATE "C" PRIMARY KEY,
    pipeline   text COLLATE "C" NOT NULL REFERENCES tidegauge.pipeline ON DELETE CASCADE,
    definition jsonb NOT NULL
);
-- measures_since: measures that were added later, and the batch after which; they lack earlier input.
ALTER TABLE tidegauge.state
    ADD COLUMN IF NOT EXISTS measures_since jsonb NOT NULL DEFAULT '{}',
    -- {"ttl": .., "changelog": ..}: as declared in code, and as edited by people. An edit overrides the declaration.
    ADD COLUMN IF NOT EXISTS declared jsonb NOT NULL DEFAULT '{}',
    ADD COLUMN IF NOT EXISTS edits jsonb NOT NULL DEFAULT '{}';

-- Input that could not be counted. Rows of an uncommitted batch are not part of the result yet.
CREATE TABLE IF NOT EXISTS tidegauge.dead_letter (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pipeline    text COLLATE "C" NOT NULL REFERENCES tidegauge.pipeline ON DELETE CASCADE,
    txid        bigint NOT NULL,
    state       text COLLATE "C" NOT NULL DEFAULT '',  -- the state that rejected it; empty: the source did
    part        integer NOT NULL DEFAULT 0,            -- the task that wrote it, whose retry replaces it
    source      text NOT NULL,                         -- the file, topic or table
    line_number bigint,
    line        text NOT NULL,
    reason      text NOT NULL,
    at          timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX IF NOT EXISTS dead_letter_by_batch ON tidegauge.dead_letter (pipeline, txid);

CREATE TABLE IF NOT EXISTS tidegauge.maintenance_run (
    id               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind             text NOT NULL CHECK (kind IN ('compaction', 'expiry')),
    state            text COLLATE "C" NOT NULL REFERENCES tidegauge.state ON DELETE CASCADE,
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
CREATE INDEX IF NOT EXISTS maintenance_run_by_state ON tidegauge.maintenance_run (state, id DESC);

-- Whether a row exists for readers; a test compares this with is_live() in Python. It compares the age, because adding
-- a day to a timestamptz adds 23 or 25 hours where the session's time zone changes its clocks.
CREATE OR REPLACE FUNCTION tidegauge.is_live(removed boolean, updated_at timestamptz, ttl interval, clock timestamptz)
    RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN NOT removed AND (ttl IS NULL OR clock - updated_at < ttl);

-- The ttl that the open batch applies to a state's rows; if none is open, the ttl of the next batch.
CREATE OR REPLACE FUNCTION tidegauge.ttl_at_hand(state text)
    RETURNS interval LANGUAGE sql STABLE
    RETURN (
        SELECT CASE WHEN b.ttls ? s.name THEN (b.ttls ->> s.name)::interval ELSE s.ttl END
        FROM tidegauge.state s JOIN tidegauge.pipeline p ON p.name = s.pipeline
        LEFT JOIN tidegauge.batch b ON b.pipeline = p.name AND b.txid = p.open_txid
        WHERE s.name = state
    );

-- Whether a session holds the advisory lock that pg_advisory_lock(lock_class, hashtext(name)) takes.
CREATE OR REPLACE FUNCTION tidegauge.is_locked(lock_class integer, name text)
    RETURNS boolean LANGUAGE sql STABLE
    RETURN EXISTS (
        SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database
        WHERE l.locktype = 'advisory' AND l.granted AND d.datname = current_database() AND l.classid = lock_class::oid
          AND l.objid::bigint = (hashtext(name)::bigint & 4294967295) AND l.objsubid = 2
    );

-- A driver holds its pipeline's lock for as long as its session lasts. The number is the ledger's LOCK_CLASS.
CREATE OR REPLACE FUNCTION tidegauge.has_driver(pipeline text)
    RETURNS boolean LANGUAGE sql STABLE
    RETURN tidegauge.is_locked(7103845, pipeline);

-- The logs of synchronizers. Every append is conditional on the log's revision: one of n racing clients succeeds.
CREATE TABLE IF NOT EXISTS tidegauge.synchronizer (
    name        text COLLATE "C" PRIMARY KEY,
    revision    bigint NOT NULL DEFAULT 0,  -- number of records ever appended
    mark        bigint,                     -- revision of the newest compacted record; null: none yet
    oldest      bigint NOT NULL DEFAULT 0,  -- records before this one are deleted
    appended_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);

CREATE TABLE IF NOT EXISTS tidegauge.synchronizer_log (
    synchronizer text COLLATE "C" NOT NULL REFERENCES tidegauge.synchronizer ON DELETE CASCADE,
    revision     bigint NOT NULL,           -- number of records before this one
    record       json NOT NULL,             -- json, not jsonb: every reader gets it as it was written
    writer       uuid NOT NULL,
    sequence     bigint NOT NULL,           -- number of the writer's append; the same number is the same append
    PRIMARY KEY (synchronizer, revision),
    UNIQUE (synchronizer, writer, sequence)
);

-- The logs of key-value stores, each with one writer: a second one collides with the positions of the first.
CREATE TABLE IF NOT EXISTS tidegauge.key_value_log (
    store    text COLLATE "C" NOT NULL,
    position bigint NOT NULL,               -- counts from 1
    key      jsonb NOT NULL,                -- the parts of the key; floats, times, dates and uuids as text
    value    json,                          -- null: the key was deleted; json, not jsonb: read back as written
    at       timestamptz NOT NULL,
    PRIMARY KEY (store, position)
);
