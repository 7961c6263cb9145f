"""What operators see: logs, metrics, and whether what is served is fresh."""
