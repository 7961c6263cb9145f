"""The Nexmark benchmark: its events, seven of its queries as pipelines, and the same queries in Spark alone."""
