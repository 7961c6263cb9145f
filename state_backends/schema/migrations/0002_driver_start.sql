-- How each driver was started, so that pages can print the command that starts it again.
ALTER TABLE tidegauge.driver ADD COLUMN started jsonb NOT NULL DEFAULT '{}';  -- see ledger/driver_start.py

-- Whether a process prepares to drive a pipeline, before it has the pipeline's lock. The number is START_CLASS of
-- driver_start.py.
CREATE FUNCTION tidegauge.is_starting(pipeline text)
    RETURNS boolean LANGUAGE sql STABLE
    RETURN tidegauge.is_locked(7103848, pipeline);
