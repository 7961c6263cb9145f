"""What a pipeline runs on: the embedded PostgreSQL and Redis, the JVM, and the folder they live in.

Nothing here imports Spark or Django, so a door can set up its surroundings before it loads either.
"""
