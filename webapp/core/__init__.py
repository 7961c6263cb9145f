"""What every room uses and what knows none of them: configuration, headers, logs, metrics, poolers, admin pages."""
