"""Spark as pipelines use it: session, settings, versions, the log of its Java process, and states as a data source."""
