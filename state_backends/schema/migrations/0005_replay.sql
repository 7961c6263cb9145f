-- Dead letters keep the raw record, and can be replayed.
ALTER TABLE tidegauge.dead_letter
    ADD COLUMN record jsonb,           -- the raw input, as its source gave it (dead_letters.py); null: not kept
    ADD COLUMN replay_at timestamptz,  -- when its replay was requested; null: it was not, or it has failed again
    ADD COLUMN replay_by text NOT NULL DEFAULT '',   -- who requested it last
    ADD COLUMN replay_txid bigint,     -- the batch that counts it, once that is committed
    ADD COLUMN counted_by text NOT NULL DEFAULT '';  -- states that have read it from the source again: no replay may
CREATE INDEX dead_letter_to_replay ON tidegauge.dead_letter (pipeline, replay_txid) WHERE replay_at IS NOT NULL;
