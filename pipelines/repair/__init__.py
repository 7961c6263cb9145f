"""Repairs of a pipeline: reprocess, recount, backfill, and recovery after a store was restored to an older point."""
