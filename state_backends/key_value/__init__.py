"""A key-value store over any backing map: cached reads, batched writes, and a log to restore it from."""
