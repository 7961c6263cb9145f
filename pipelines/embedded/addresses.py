"""The variables that name the servers. `ensure_servers` sets those that are unset."""

import os
from collections.abc import Mapping

ADDRESSES = ("DATABASE_URL", "REDIS_URL")


def are_known(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether the environment has the addresses, so that settings and modules of a user's read what stays."""
    return all(map(environ.get, ADDRESSES))
