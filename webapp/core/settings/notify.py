"""Verdicts on pipelines, and what tells people of them: mail, webhooks."""

from tidegauge.webapp.core.installation import networks
from tidegauge.webapp.core.settings.environment import env

# A pipeline is stale if its oldest unread input is older than this.
TIDEGAUGE_STALE_AFTER_SECONDS = env.float("TIDEGAUGE_STALE_AFTER_SECONDS", default=300.0)
# A pipeline is rejecting if more than this share of the rows of recent batches are dead letters; 0 to 1.
TIDEGAUGE_REJECTED_SHARE = env.float("TIDEGAUGE_REJECTED_SHARE", default=0.05)
# Keys that a scheduled audit compares, of each state: some of its changelog and as many of its table.
TIDEGAUGE_AUDIT_KEYS = 1_000

# Networks beside the public addresses that webhooks may be sent to, such as 10.1.0.0/16, also by http://.
TIDEGAUGE_WEBHOOK_NETWORKS = networks("TIDEGAUGE_WEBHOOK_NETWORKS", env.list("TIDEGAUGE_WEBHOOK_NETWORKS", default=[]))
# The longest time that one attempt to send a webhook takes.
TIDEGAUGE_WEBHOOK_SECONDS = env.float("TIDEGAUGE_WEBHOOK_SECONDS", default=10.0)

# The mail server, such as smtp+tls://user:password@mail.example:587; without one alerts are not sent by mail.
TIDEGAUGE_MAIL = bool(env.str("EMAIL_URL", default=""))
if TIDEGAUGE_MAIL:
    globals().update(env.email_url("EMAIL_URL"))
DEFAULT_FROM_EMAIL = env.str("EMAIL_FROM", default="tidegauge@localhost")
# Of each step of a conversation with the mail server.
EMAIL_TIMEOUT = 10.0
# Where people reach the dashboard, for the links in mails, such as https://tidegauge.example; empty: no links.
TIDEGAUGE_PUBLIC_URL = env.str("TIDEGAUGE_PUBLIC_URL", default="").rstrip("/")
