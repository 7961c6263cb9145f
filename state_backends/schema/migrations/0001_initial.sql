-- The schema: pipelines, batches, states, dead letters, maintenance and logs.

CREATE SCHEMA IF NOT EXISTS tidegauge;
CREATE SCHEMA IF NOT EXISTS tidegauge_state;             -- a table per state
CREATE SCHEMA IF NOT EXISTS tidegauge_live;              -- a view per state: committed and unexpired rows, with results
CREATE SCHEMA IF NOT EXISTS tidegauge_changelog;         -- a table per state that has a changelog
CREATE SCHEMA IF NOT EXISTS tidegauge_shadow_state;      -- tables that are filled to replace those of tidegauge_state
CREATE SCHEMA IF NOT EXISTS tidegauge_shadow_changelog;  -- and those of tidegauge_changelog
CREATE SCHEMA IF NOT EXISTS tidegauge_kept_state;        -- the tables that a reprocess has replaced
CREATE SCHEMA IF NOT EXISTS tidegauge_kept_changelog;

-- Epochs: the incarnations of the ledger; the newest row is the current one. A row is written by one transaction and
-- never updated by a later one: xmin differs from made_by once it was restored or copied.
CREATE TABLE tidegauge.epoch (
    number   integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    epoch    text NOT NULL UNIQUE,  -- random
    reason   text NOT NULL,
    identity jsonb NOT NULL,        -- the server, database and tables in which it was made
    made_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    made_by  bigint                 -- xmin of the row as it was inserted
);
-- Whether the ledger's rows are those that were written here, not restored or copied. It is asked in every transaction
-- under the fence: a ledger may be restored, while a driver runs, to the very numbers that the driver holds.
CREATE FUNCTION tidegauge.is_original() RETURNS boolean LANGUAGE sql STABLE RETURN coalesce((
    SELECT e.made_by = e.xmin::text::bigint FROM tidegauge.epoch e ORDER BY e.number DESC LIMIT 1), false);

-- Time. The clock that batches and maintenance go by.
CREATE FUNCTION tidegauge.clock() RETURNS timestamptz LANGUAGE sql VOLATILE RETURN clock_timestamp();

-- The ledger's row. Executors lock it FOR SHARE while they write, so an UPDATE waits until the open batch is written.
CREATE TABLE tidegauge.pipeline (
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
    created_at         timestamptz NOT NULL DEFAULT now(),
    -- The pipeline whose states this one reprocesses, and which it replaces once it has caught up.
    reprocesses        text COLLATE "C" REFERENCES tidegauge.pipeline ON DELETE CASCADE,
    epoch              text NOT NULL DEFAULT '',    -- of the pipeline's numbers; empty before its first driver
    token              text NOT NULL DEFAULT '',    -- random, of each acquisition: fences of two epochs may be equal
    sources            jsonb NOT NULL DEFAULT '[]', -- per source: the topics, folders, .. that it reads, and their ids
    fed_after          bigint NOT NULL DEFAULT 0,   -- the batch before the first one that fed the present states
    -- Files that were read up to this batch are unknown: it was the last one before they were recorded.
    files_since        bigint NOT NULL DEFAULT 0,
    -- The history that a pipeline counts, or has counted, before its own source: {"from": .., "upto": txid}; no upto:
    -- under way; null: none.
    backfill           jsonb
) WITH (fillfactor = 50);
-- Finds the newest version of a ledger row first, whatever dead ones a held snapshot keeps; see committed.py.
CREATE INDEX pipeline_newest ON tidegauge.pipeline (name COLLATE "POSIX", committed_txid);

CREATE TABLE tidegauge.batch (
    pipeline     text COLLATE "C" NOT NULL REFERENCES tidegauge.pipeline ON DELETE CASCADE,
    txid         bigint NOT NULL,
    attempt      integer NOT NULL,
    batch_id     bigint NOT NULL,
    fence        bigint NOT NULL,
    batch_time   timestamptz NOT NULL,
    started_at   timestamptz NOT NULL,         -- of the latest attempt
    committed_at timestamptz,                  -- null: open
    offsets      jsonb,
    rows_in      bigint,
    keys_written jsonb,                        -- state name to number of keys
    dead_letters bigint NOT NULL DEFAULT 0,
    id           bigint GENERATED ALWAYS AS IDENTITY UNIQUE,  -- for readers that want a key of one column
    late         bigint NOT NULL DEFAULT 0,    -- events later than the watermark
    dropped      bigint NOT NULL DEFAULT 0,    -- those of them that were not counted
    tasks        jsonb,                        -- per state {"tasks": n, "largest": most keys of one}
    watermark    timestamptz,                  -- event time that the batch reached
    marks        jsonb NOT NULL DEFAULT '{}',  -- the watermark of each of its streams
    metrics      jsonb NOT NULL DEFAULT '{}',  -- Spark's: durations in ms, rows, rates
    -- Sums over all batches up to this one, so that older batches can be deleted; null: the batch is open.
    total_dead_letters bigint,
    total_late    bigint,
    total_dropped bigint,
    -- State name to the ttl that all attempts at the batch use, even if it is edited between them.
    ttls         jsonb,
    epoch        text NOT NULL DEFAULT '',
    token        text NOT NULL DEFAULT '',
    input        jsonb,                        -- what each source gave (SourceInput.fingerprint); null: unknown
    total_rows_in bigint,                      -- sum of rows_in up to this batch; null: as of total_late
    PRIMARY KEY (pipeline, txid)
) WITH (fillfactor = 70);
-- The files of each batch, which count once it is committed. Never trimmed: a new checkpoint must leave them out.
CREATE TABLE tidegauge.input_file (
    pipeline text COLLATE "C" NOT NULL REFERENCES tidegauge.pipeline ON DELETE CASCADE,
    txid     bigint NOT NULL,
    source   integer NOT NULL,        -- its place among the pipeline's sources
    files    jsonb NOT NULL,          -- path, relative to the source's folder, to time of modification, ms since 1970
    PRIMARY KEY (pipeline, txid, source)
);
-- The first batch that fed the present states, for when its record has been trimmed.
CREATE TABLE tidegauge.first_input (
    pipeline text COLLATE "C" PRIMARY KEY REFERENCES tidegauge.pipeline ON DELETE CASCADE,
    txid     bigint NOT NULL,
    offsets  jsonb,
    input    jsonb
);

-- The driver's status; not in tidegauge.pipeline, whose row must not be updated while a batch is open.
CREATE TABLE tidegauge.driver (
    pipeline     text COLLATE "C" PRIMARY KEY REFERENCES tidegauge.pipeline ON DELETE CASCADE,
    host         text NOT NULL,
    pid          integer NOT NULL,
    since        timestamptz NOT NULL,
    status       text NOT NULL,               -- starting, running, paused, restarting, stopped, finished, failed
    message      text NOT NULL DEFAULT '',
    progress     jsonb NOT NULL DEFAULT '{}',
    updated_at   timestamptz NOT NULL,
    failures     integer NOT NULL DEFAULT 0,  -- consecutive: a committed batch resets them
    max_failures integer,                     -- the driver stops after this many
    next_try_at  timestamptz                  -- null: it is not about to restart
) WITH (fillfactor = 50);

-- Whether a pipeline should be paused, as requested by people; exists without a driver. No row: it may run.
CREATE TABLE tidegauge.pipeline_wish (
    pipeline     text COLLATE "C" PRIMARY KEY REFERENCES tidegauge.pipeline ON DELETE CASCADE,
    paused       boolean NOT NULL,
    requested_by text NOT NULL,
    requested_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE tidegauge.state (
    name              text COLLATE "C" PRIMARY KEY,
    pipeline          text COLLATE "C" NOT NULL REFERENCES tidegauge.pipeline ON DELETE CASCADE,
    definition        jsonb NOT NULL,
    version           integer NOT NULL DEFAULT 1,   -- grows with each change of the definition
    ttl               interval,
    guarantee         text NOT NULL,
    since_txid        bigint NOT NULL DEFAULT 0,    -- the state was added after this batch and lacks earlier input
    oldest_txid       bigint NOT NULL DEFAULT 0,    -- the oldest batch that as-of reads can reach
    created_at        timestamptz NOT NULL DEFAULT now(),
    -- Measures that were added later, and the batch after which; they lack earlier input.
    measures_since    jsonb NOT NULL DEFAULT '{}',
    -- {"ttl": .., "changelog": ..}: as declared in code, and as edited by people. An edit overrides the declaration.
    declared          jsonb NOT NULL DEFAULT '{}',
    edits             jsonb NOT NULL DEFAULT '{}',
    -- How far a state is fed; see schema/feeding.py.
    last_fed_txid     bigint,                       -- null: its pipeline feeds it
    measures_last_fed jsonb NOT NULL DEFAULT '{}',  -- measures that are stored and not fed
    -- What a state's store holds.
    finding           text NOT NULL DEFAULT '',     -- why it is not served: store and ledger do not agree
    warning           text NOT NULL DEFAULT '',     -- what people should know of its store's settings
    -- The time by which rows were freed as expired, the latest; null: none were. The committed batch may come again, and
    -- must not count on them.
    expired_until     timestamptz
);
-- States that are being reprocessed, as they were declared when the reprocess began.
CREATE TABLE tidegauge.successor_state (
    name       text COLLATE "C" PRIMARY KEY,
    pipeline   text COLLATE "C" NOT NULL REFERENCES tidegauge.pipeline ON DELETE CASCADE,
    definition jsonb NOT NULL
);

-- The reprocesses of a pipeline, of which the newest may be unfinished; see state_backends/schema/reprocess.py.
CREATE TABLE tidegauge.reprocess (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pipeline   text COLLATE "C" NOT NULL REFERENCES tidegauge.pipeline ON DELETE CASCADE,
    phase      text NOT NULL DEFAULT 'feeding'
               CHECK (phase IN ('feeding', 'swapped', 'settled', 'aborted', 'rolling_back', 'rolled_back')),
    checkpoint text NOT NULL DEFAULT '',  -- Spark's folder of the pipeline; that of the shadow is beside it
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    swapped_at timestamptz,
    ended_at   timestamptz,               -- when it was settled, aborted or rolled back
    accepted   text NOT NULL DEFAULT '',  -- what it lacks of the input counted before, as accepted at the swap
    keep_until timestamptz,               -- what it replaced is kept until then; null: it was not kept
    kept       jsonb                      -- replaced state to its row in tidegauge.state, null for a new state
);
CREATE UNIQUE INDEX reprocess_unfinished ON tidegauge.reprocess (pipeline)
    WHERE phase IN ('feeding', 'swapped', 'rolling_back');
CREATE UNIQUE INDEX reprocess_kept ON tidegauge.reprocess (pipeline) WHERE kept IS NOT NULL;

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

-- Input that could not be counted. Rows of an uncommitted batch are not part of the result yet.
CREATE TABLE tidegauge.dead_letter (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pipeline    text COLLATE "C" NOT NULL REFERENCES tidegauge.pipeline ON DELETE CASCADE,
    txid        bigint NOT NULL,
    state       text COLLATE "C" NOT NULL DEFAULT '',  -- the state that rejected it; empty: the source did
    part        integer NOT NULL DEFAULT 0,            -- the task that wrote it, whose retry replaces it
    source      text NOT NULL,                         -- the file, topic or table
    line_number bigint,
    line        text NOT NULL,
    reason      text NOT NULL,
    at          timestamptz NOT NULL DEFAULT now(),
    record      jsonb,                     -- the raw input, as its source gave it (dead_letters/); null: not kept
    replay_at   timestamptz,               -- when its replay was requested; null: it was not, or it has failed again
    replay_by   text NOT NULL DEFAULT '',  -- who requested it last
    replay_txid bigint,                    -- the batch that counts it, once that is committed
    counted_by  text NOT NULL DEFAULT ''   -- states that have read it from the source again: no replay may
);
CREATE INDEX dead_letter_by_batch ON tidegauge.dead_letter (pipeline, txid);
CREATE INDEX dead_letter_to_replay ON tidegauge.dead_letter (pipeline, replay_txid) WHERE replay_at IS NOT NULL;

CREATE TABLE tidegauge.maintenance_run (
    id               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind             text NOT NULL CHECK (kind IN ('compaction', 'expiry', 'audit')),
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
CREATE INDEX maintenance_run_by_state ON tidegauge.maintenance_run (state, id DESC);

-- Whether a row exists for readers; a test compares this with is_live() in Python. It compares the age, because adding
-- a day to a timestamptz adds 23 or 25 hours where the session's time zone changes its clocks.
CREATE FUNCTION tidegauge.is_live(removed boolean, updated_at timestamptz, ttl interval, clock timestamptz)
    RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN NOT removed AND (ttl IS NULL OR clock - updated_at < ttl);

-- The ttl that the open batch applies to a state's rows; if none is open, the ttl of the next batch.
CREATE FUNCTION tidegauge.ttl_at_hand(state text)
    RETURNS interval LANGUAGE sql STABLE
    RETURN (
        SELECT CASE WHEN b.ttls ? s.name THEN (b.ttls ->> s.name)::interval ELSE s.ttl END
        FROM tidegauge.state s JOIN tidegauge.pipeline p ON p.name = s.pipeline
        LEFT JOIN tidegauge.batch b ON b.pipeline = p.name AND b.txid = p.open_txid
        WHERE s.name = state
    );

-- The time in a field of a JSON value, for an index of timers: the cast of a text to a time depends on settings, so they
-- are fixed here. A time without a zone is UTC.
CREATE FUNCTION tidegauge.due_at(value jsonb, field text) RETURNS timestamptz LANGUAGE plpgsql
IMMUTABLE STRICT PARALLEL SAFE SET timezone = 'UTC' SET datestyle = 'ISO, YMD'
AS $$ BEGIN RETURN (value ->> field)::timestamptz; END $$;

-- The sessions that hold or await the advisory lock of a name, which state_lock.py takes. It has 64 bits, because names
-- excluded each other by accident with 32.
CREATE FUNCTION tidegauge.lock_sessions(lock_class integer, name text)
    RETURNS TABLE (pid integer, granted boolean) LANGUAGE sql STABLE
    BEGIN ATOMIC
        SELECT l.pid, l.granted FROM pg_locks l JOIN pg_database d ON d.oid = l.database
        WHERE l.locktype = 'advisory' AND d.datname = current_database() AND l.mode = 'ExclusiveLock'
          AND l.objsubid = 1 AND ((l.classid::bigint << 32) | l.objid::bigint) = hashtextextended(name, lock_class);
    END;

CREATE FUNCTION tidegauge.is_locked(lock_class integer, name text)
    RETURNS boolean LANGUAGE sql STABLE
    RETURN EXISTS (SELECT FROM tidegauge.lock_sessions(lock_class, name) l WHERE l.granted);

-- A driver holds its pipeline's lock for as long as its session lasts. The number is the ledger's LOCK_CLASS.
CREATE FUNCTION tidegauge.has_driver(pipeline text)
    RETURNS boolean LANGUAGE sql STABLE
    RETURN tidegauge.is_locked(7103845, pipeline);

-- Work on a state's tables: who holds, or held last, the advisory locks of state_lock.py.
CREATE TABLE tidegauge.state_work (
    state       text COLLATE "C" NOT NULL,  -- may not be registered yet
    tables      text NOT NULL CHECK (tables IN ('live', 'shadow')),
    work        text NOT NULL,
    token       text NOT NULL,              -- random, of this time that the lock was taken
    host        text NOT NULL,
    pid         integer NOT NULL,
    backend_pid integer NOT NULL,           -- of the session that holds the lock
    since       timestamptz NOT NULL,
    PRIMARY KEY (state, tables)
);

-- Whether a session does this work on a state's live tables. The number is the lock class of state_lock.py.
CREATE FUNCTION tidegauge.is_worked_on(state text, work text)
    RETURNS boolean LANGUAGE sql STABLE
    RETURN tidegauge.is_locked(7103846, is_worked_on.state) AND EXISTS (
        SELECT FROM tidegauge.state_work w
        WHERE w.state = is_worked_on.state AND w.work = is_worked_on.work AND w.tables = 'live'
    );

-- The logs of synchronizers. Every append is conditional on the log's revision: one of n racing clients succeeds.
CREATE TABLE tidegauge.synchronizer (
    name        text COLLATE "C" PRIMARY KEY,
    revision    bigint NOT NULL DEFAULT 0,  -- number of records ever appended
    mark        bigint,                     -- revision of the newest compacted record; null: none yet
    oldest      bigint NOT NULL DEFAULT 0,  -- records before this one are deleted
    appended_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);

CREATE TABLE tidegauge.synchronizer_log (
    synchronizer text COLLATE "C" NOT NULL REFERENCES tidegauge.synchronizer ON DELETE CASCADE,
    revision     bigint NOT NULL,           -- number of records before this one
    record       json NOT NULL,             -- json, not jsonb: every reader gets it as it was written
    writer       uuid NOT NULL,
    sequence     bigint NOT NULL,           -- number of the writer's append; the same number is the same append
    PRIMARY KEY (synchronizer, revision),
    UNIQUE (synchronizer, writer, sequence)
);

-- The logs of key-value stores, each with one writer: a second one collides with the positions of the first.
CREATE TABLE tidegauge.key_value_log (
    store    text COLLATE "C" NOT NULL,
    position bigint NOT NULL,               -- counts from 1
    key      jsonb NOT NULL,                -- the parts of the key; floats, times, dates and uuids as text
    value    json,                          -- null: the key was deleted; json, not jsonb: read back as written
    at       timestamptz NOT NULL,
    PRIMARY KEY (store, position)
);
