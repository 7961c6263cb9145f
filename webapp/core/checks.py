"""System checks of how the installation is reached; each process logs them once as it starts."""

import logging
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Warning

LOOPBACK = {"127.0.0.1", "[::1]"}
CLEARTEXT = (
    "set TIDEGAUGE_HTTPS=1 where clients connect by HTTPS, so that cookies are Secure and browsers keep to HTTPS; "
    "without HTTPS, passwords and API keys can be read on the way; see docs/deploy.md"
)

logger = logging.getLogger(__name__)


def https(**_: Any) -> list[CheckMessage]:
    """Warn where people seem to connect from elsewhere, and TIDEGAUGE_HTTPS is off."""
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
    # A name without a dot is one of this machine or of a private network, as in compose.
    elsewhere = [host for host in settings.ALLOWED_HOSTS if host == "*" or ("." in host and host not in LOOPBACK)]
    if elsewhere and not settings.DEBUG:
        named = ", ".join(elsewhere)
        found.append(Warning(f"ALLOWED_HOSTS has {named} and TIDEGAUGE_HTTPS is off", CLEARTEXT, id="tidegauge.W002"))
    return found


def log_warnings() -> None:
    """Log what the checks find, as commands of Django print it; a server process runs no checks by itself."""
    for each in https():
        logger.warning("%s (%s): %s", each.msg, each.id, each.hint)
