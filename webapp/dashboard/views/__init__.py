"""The pages: what goes on, pipeline by pipeline and state by state. Views parse and answer; they read no tables."""
