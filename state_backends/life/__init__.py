"""The life of a state or pipeline after it was declared: retired, renamed, or moved elsewhere."""
