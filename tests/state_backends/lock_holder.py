"""A process that takes the lock of a work on a state, says so, and holds it until it is killed."""

import sys
import time

import psycopg

from tidegauge.state_backends.ledger.state_lock import state_lock

if __name__ == "__main__":
    url, state, work = sys.argv[1:]
    with psycopg.connect(url, autocommit=True) as conn, state_lock(conn, state, work):
        print("held", flush=True)
        time.sleep(600)
