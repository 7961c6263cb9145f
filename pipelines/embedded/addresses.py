"""The variables that name the servers. `ensure_servers` sets those that are unset."""

import os
from collections.abc import Mapping

ADDRESSES = ("DATABASE_URL", "REDIS_URL")


def are_known(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether both addresses are set, so that a user's settings and modules can already read the final ones."""
    return all(map(environ.get, ADDRESSES))
