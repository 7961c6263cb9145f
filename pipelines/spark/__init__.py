"""Spark as pipelines use it: its session, settings and versions, what Java prints, and states as a data source."""
