"""What maintenance tells the rooms above it, which keep names of states and pipelines, or records that grow old.

A receiver is connected in the `ready` of its application. An error of one goes to the caller, and the rename is undone.
"""

from django.dispatch import Signal

# conn, old, new: within the transaction of the rename, on its psycopg connection.
state_renamed = Signal()

# old, new: after the rename is committed; a second call finishes what a crash has left.
pipeline_renamed = Signal()

# At each scheduled run, which deletes what is older than its own setting says.
forgetting_old = Signal()
