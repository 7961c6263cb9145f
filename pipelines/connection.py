"""A connection to the database that gives up on stuck statements, locks and peers."""

import psycopg

# A task that waits longer has met a stuck writer; failing it lets the batch be tried again. They travel with the
# connection's first message, so they cost no round trip.
SESSION = {
    "statement_timeout": "10min",
    "lock_timeout": "60s",
    "idle_in_transaction_session_timeout": "10min",
    "work_mem": "64MB",  # a task's rows are sorted by key before they are merged
    "timezone": "UTC",
}


def connect(dsn: str, name: str) -> psycopg.Connection:
    """Open a connection in autocommit mode. name: what the server's list of connections shows after `tidemark`."""
    options = " ".join(f"-c {setting}={value}" for setting, value in SESSION.items())
    return psycopg.connect(
        dsn,
        autocommit=True,
        application_name=f"tidemark {name}"[:63],
        options=options,
        connect_timeout=10,
        keepalives_idle=30,
    )
