"""The audit log: who did what, and when."""
