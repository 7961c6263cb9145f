"""What every part of the web half shares: configuration, logs, metrics, health, the content security policy."""
