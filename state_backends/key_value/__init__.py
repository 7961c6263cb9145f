"""A key-value store over any backing map, after Samza: a read cache, batched writes, and a log to restore it from.

Library: nothing in the pipelines uses the key-value store. It is for applications that keep state outside of batches.
"""
