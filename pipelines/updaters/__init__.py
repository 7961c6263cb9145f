"""Updaters: what keeps events of a key until event time says what they amount to, ready for use in a pipeline."""
