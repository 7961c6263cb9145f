"""The process that runs a pipeline: its query, what it reports, and how a pipeline is found and checked."""
