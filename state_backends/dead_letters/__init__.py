"""Input that could not be counted: how it is stored, and counted later."""
