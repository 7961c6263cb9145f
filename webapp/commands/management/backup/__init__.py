"""Backup and restore: the database, the checkpoints and the states outside of the database, as of one batch.

A backup is a folder with a manifest, which has the version, epoch and batches, and the size and checksum of each file.
"""
