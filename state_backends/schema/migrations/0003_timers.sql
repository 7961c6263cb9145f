-- The time in a field of a JSON value, for an index of timers: the cast of a text to a time depends on settings, so they
-- are fixed here. A time without a zone is UTC.
CREATE FUNCTION tidegauge.due_at(value jsonb, field text) RETURNS timestamptz LANGUAGE plpgsql
IMMUTABLE STRICT PARALLEL SAFE SET timezone = 'UTC' SET datestyle = 'ISO, YMD'
AS $$ BEGIN RETURN (value ->> field)::timestamptz; END $$;
