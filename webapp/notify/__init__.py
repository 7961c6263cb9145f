"""Who is told: alerts, which rules find, and webhooks, which send."""
