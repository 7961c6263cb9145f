"""The demo: a year of flights as input, and a recount that does without Spark."""
