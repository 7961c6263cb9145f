"""The embedded PostgreSQL and Redis, the JVM, and the folder that they live in."""
