"""The commands that need pipelines: the only room of webapp that imports Spark."""
