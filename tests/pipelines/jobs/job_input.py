"""A fault that the test kit does not have: writes that fail in the database, for tests of whole drivers."""

from contextlib import contextmanager


@contextmanager
def refusing(conn, state):
    """Make every write to a state fail within the block, and with it the batch."""
    conn.execute(
        "CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'failed by the test'; END $$"
    )
    conn.execute(f"CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON tidegauge_state.{state} EXECUTE FUNCTION refuse()")
    try:
        yield
    finally:
        conn.execute("DROP FUNCTION public.refuse() CASCADE")
