"""The commands that need pipelines. It is the only app of webapp that may import Spark."""
