-- The time by which rows of a state were freed as expired, the latest; null: none were. The committed batch may come
-- again, and must not count on them.
ALTER TABLE tidegauge.state ADD COLUMN expired_until timestamptz;

-- The sessions that hold or await the advisory lock of a name, which state_lock.py takes: of 64 bits, since names excluded
-- each other by accident with 32. A process of the release before, which may still run, takes the one of 32 bits for
-- itself; later ones share that.
CREATE FUNCTION tidegauge.lock_sessions(lock_class integer, name text)
    RETURNS TABLE (pid integer, granted boolean) LANGUAGE sql STABLE
    BEGIN ATOMIC
        SELECT l.pid, l.granted FROM pg_locks l JOIN pg_database d ON d.oid = l.database
        WHERE l.locktype = 'advisory' AND d.datname = current_database() AND l.mode = 'ExclusiveLock' AND (
            (l.objsubid = 1 AND ((l.classid::bigint << 32) | l.objid::bigint) = hashtextextended(name, lock_class))
            OR (l.objsubid = 2 AND l.classid = lock_class::oid
                AND l.objid::bigint = (hashtext(name)::bigint & 4294967295)));
    END;

CREATE OR REPLACE FUNCTION tidegauge.is_locked(lock_class integer, name text)
    RETURNS boolean LANGUAGE sql STABLE
    RETURN EXISTS (SELECT FROM tidegauge.lock_sessions(lock_class, name) l WHERE l.granted);
