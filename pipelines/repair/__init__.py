"""Counting again and bringing together: reprocess, recount, backfill, recovery after a store went back."""
