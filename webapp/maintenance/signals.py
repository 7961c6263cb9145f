"""Signals to the apps above this one, which store names of states and pipelines, or records that must be deleted later.

A receiver is connected in the `ready` of its app. An error of a receiver goes to the caller.
"""

from django.dispatch import Signal

# conn, old, new. Sent within the transaction of the rename, on its psycopg connection, so that an error undoes both.
state_renamed = Signal()

# old, new. Sent after the rename is committed; after a crash in between, renaming again sends it.
pipeline_renamed = Signal()

# Sent at each scheduled run. Receivers delete records that are older than their own setting allows.
forgetting_old = Signal()
