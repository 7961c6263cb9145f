"""The embedded PostgreSQL, Redis and JVM, and the folder of their data."""
