"""Input that could not be counted: how it is stored, and how it is replayed later."""
