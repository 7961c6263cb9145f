-- What tells that the ledger, a checkpoint, a source or a store has gone back, and who is changing a state's tables.

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
ALTER TABLE tidegauge.pipeline
    ADD COLUMN epoch text NOT NULL DEFAULT '',  -- of the pipeline's numbers; empty before its first driver
    ADD COLUMN token text NOT NULL DEFAULT '';  -- random, of each acquisition: fences of two epochs may be equal
ALTER TABLE tidegauge.batch
    ADD COLUMN epoch text NOT NULL DEFAULT '',
    ADD COLUMN token text NOT NULL DEFAULT '';

-- The input of a batch.
ALTER TABLE tidegauge.batch
    ADD COLUMN input jsonb,           -- what each source gave (SourceInput.fingerprint); null: unknown
    ADD COLUMN total_rows_in bigint;  -- sum of rows_in up to this batch; null: as of total_late
ALTER TABLE tidegauge.pipeline
    ADD COLUMN sources jsonb NOT NULL DEFAULT '[]',   -- per source: the topics, folders, .. that it reads, and their ids
    ADD COLUMN fed_after bigint NOT NULL DEFAULT 0;   -- the batch before the first one that fed the present states
-- The files of each batch, which count once it is committed. Never trimmed: a new checkpoint must leave them out.
CREATE TABLE tidegauge.input_file (
    pipeline text COLLATE "C" NOT NULL REFERENCES tidegauge.pipeline ON DELETE CASCADE,
    txid     bigint NOT NULL,
    source   integer NOT NULL,        -- its place among the pipeline's sources
    files    jsonb NOT NULL,          -- path, relative to the source's folder, to time of modification, ms since 1970
    PRIMARY KEY (pipeline, txid, source)
);
-- Files that were read up to this batch are unknown: it was the last one before they were recorded.
ALTER TABLE tidegauge.pipeline ADD COLUMN files_since bigint NOT NULL DEFAULT 0;
UPDATE tidegauge.pipeline SET files_since = committed_txid;
-- The first batch that fed the present states, for when its record has been trimmed.
CREATE TABLE tidegauge.first_input (
    pipeline text COLLATE "C" PRIMARY KEY REFERENCES tidegauge.pipeline ON DELETE CASCADE,
    txid     bigint NOT NULL,
    offsets  jsonb,
    input    jsonb
);

-- Time. The clock that batches and maintenance go by.
CREATE FUNCTION tidegauge.clock() RETURNS timestamptz LANGUAGE sql VOLATILE RETURN clock_timestamp();

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
CREATE SCHEMA IF NOT EXISTS tidegauge_kept_state;      -- the tables that a reprocess has replaced
CREATE SCHEMA IF NOT EXISTS tidegauge_kept_changelog;
INSERT INTO tidegauge.reprocess (pipeline, started_at)
    SELECT reprocesses, created_at FROM tidegauge.pipeline WHERE reprocesses IS NOT NULL;

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

-- How far a state is fed; see schema/feeding.py.
ALTER TABLE tidegauge.state
    ADD COLUMN last_fed_txid bigint,                              -- null: its pipeline feeds it
    ADD COLUMN measures_last_fed jsonb NOT NULL DEFAULT '{}';     -- measures that are stored and not fed

-- Finds the newest version of a ledger row first, whatever dead ones a held snapshot keeps; see committed.py.
CREATE INDEX pipeline_newest ON tidegauge.pipeline (name COLLATE "POSIX", committed_txid);

-- Audits.
ALTER TABLE tidegauge.maintenance_run
    DROP CONSTRAINT maintenance_run_kind_check,
    ADD CONSTRAINT maintenance_run_kind_check CHECK (kind IN ('compaction', 'expiry', 'audit'));

-- What a state's store holds.
ALTER TABLE tidegauge.state
    ADD COLUMN finding text NOT NULL DEFAULT '',  -- why it is not served: store and ledger do not agree
    ADD COLUMN warning text NOT NULL DEFAULT '';  -- what people should know of its store's settings
