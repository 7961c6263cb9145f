"""Updaters for common stateful operations: joins, sessions, distinct tuples, reordering, counts."""
