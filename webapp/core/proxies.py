"""Detects a proxy that is not in the settings: all clients behind it count as one address, and share its limits."""

import logging
from collections.abc import Mapping
from typing import Any

from django.conf import settings

logger = logging.getLogger(__name__)

UNKNOWN_PROXY = (
    "requests arrive with X-Forwarded-For, but TIDEGAUGE_PROXIES is 0: all clients behind the proxy count as "
    "one address; set it to the number of proxies in front (docs/access.md)"
)


class _Notice:
    is_given = False


_notice = _Notice()


def notice(meta: Mapping[str, Any]) -> None:
    """Log a warning at the first request that comes from a proxy although the settings name none."""
    if "HTTP_X_FORWARDED_FOR" in meta and not settings.PROXIES and not _notice.is_given:
        _notice.is_given = True
        logger.warning(UNKNOWN_PROXY)


def warnings() -> list[str]:
    return [UNKNOWN_PROXY] if _notice.is_given else []


def forget() -> None:
    _notice.is_given = False
