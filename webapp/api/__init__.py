"""The REST API: lookups, entries, exports, maintenance."""
