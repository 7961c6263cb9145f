"""A shared object that many processes change, after Pravega: each process replays one ordered log of updates.

Library: nothing in the pipelines uses the synchronizer itself. Its one user is `membership`, the list of live drivers
and workers, which the driver session and the web processes join.
"""
