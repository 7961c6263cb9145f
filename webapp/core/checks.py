"""System checks of how clients reach this installation; each process logs them once as it starts."""

import logging
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Warning

LOOPBACK = {"127.0.0.1", "[::1]"}
CLEARTEXT = (
    "set TIDEGAUGE_HTTPS=1 if clients connect over HTTPS, so that cookies are Secure and browsers stay on HTTPS; "
    "without HTTPS, passwords and API keys can be read in transit; see docs/deploy.md"
)

logger = logging.getLogger(__name__)


def https(**_: Any) -> list[CheckMessage]:
    """Warn if clients seem to connect from other machines while TIDEGAUGE_HTTPS is off."""
    if settings.HTTPS:
        return []
    found: list[CheckMessage] = []
    if settings.BEHIND_PROXY:
        found.append(
            Warning(
                "TIDEGAUGE_PROXIES is set and TIDEGAUGE_HTTPS is off",
                CLEARTEXT,
                id="tidegauge.W001",
            )
        )
    # A name without a dot belongs to this machine or to a private network, as in compose.
    elsewhere = [host for host in settings.ALLOWED_HOSTS if host == "*" or ("." in host and host not in LOOPBACK)]
    if elsewhere and not settings.DEBUG:
        named = ", ".join(elsewhere)
        found.append(Warning(f"ALLOWED_HOSTS has {named} and TIDEGAUGE_HTTPS is off", CLEARTEXT, id="tidegauge.W002"))
    return found


def log_warnings() -> None:
    """Log what the checks find, because a server process does not run them as Django's commands do."""
    for each in https():
        logger.warning("%s (%s): %s", each.msg, each.id, each.hint)
