-- Name of a tile to the time before which it is in use, and `gone` to the time before which tiles were dropped; see
-- spec/tiles.py.
ALTER TABLE tidegauge.state ADD COLUMN tiles_until jsonb NOT NULL DEFAULT '{}';

-- The start of the tile that is in use at a time; null for a state without tiles. A window between two such times, read
-- in the same statement, holds exactly the events in it. It is for SQL over the live views as well, so it reads the
-- catalog with its owner's privileges. The same rule as Tiles.start in spec/tiles.py.
CREATE FUNCTION tidegauge.tile_start(state text, at timestamptz)
    RETURNS timestamptz LANGUAGE sql STABLE SECURITY DEFINER
    RETURN (
        SELECT date_bin(w.seconds * interval '1 second', tile_start.at, timestamptz '1970-01-01 00:00:00+00')
        FROM tidegauge.state s
        JOIN (VALUES ('second', 1), ('minute', 60), ('hour', 3600), ('day', 86400)) w (tile, seconds)
            ON s.definition -> 'tiles' ? w.tile
        CROSS JOIN LATERAL (
            SELECT coalesce(tile_start.at < (s.tiles_until ->> w.tile)::timestamptz, false) AS in_use
        ) u
        WHERE s.name = tile_start.state
        -- The coarsest of those in use; the finest where none is.
        ORDER BY u.in_use DESC, CASE WHEN u.in_use THEN -w.seconds ELSE w.seconds END LIMIT 1
    );
