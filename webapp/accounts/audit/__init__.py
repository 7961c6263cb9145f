"""The audit: who did what, and when."""
