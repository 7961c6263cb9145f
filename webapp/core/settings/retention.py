"""How long things are kept."""

from tidegauge.webapp.core.settings.environment import env

# How far back histories and as-of reads reach; compaction deletes older changelog entries.
TIDEGAUGE_CHANGELOG_KEEP_HOURS = env.int("TIDEGAUGE_CHANGELOG_KEEP_HOURS", default=168)
# Finished maintenance runs, the history of verdicts, and past alerts.
TIDEGAUGE_KEEP_DAYS = env.int("TIDEGAUGE_KEEP_DAYS", default=90)
# Messages of webhooks that were delivered or given up, because they have values of states in them.
TIDEGAUGE_WEBHOOK_KEEP_DAYS = min(14, TIDEGAUGE_KEEP_DAYS)
# The audit log, and the usage of API keys.
TIDEGAUGE_AUDIT_KEEP_DAYS = env.int("TIDEGAUGE_AUDIT_KEEP_DAYS", default=400)
