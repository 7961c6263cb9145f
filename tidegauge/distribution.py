"""Finds out where pip can install the running Tidegauge from: the package index, a checkout, or a wheel."""

import json
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from tidegauge.state_backends.extras import DISTRIBUTION, with_extras

CHECKOUT = Path(__file__).absolute().parents[1]


def requirement(extras: str) -> str:
    """Return the requirement that installs the running Tidegauge with extras: `tidegauge[spark]`, or that with a URL.

    Pip records the URL of a file or folder that it installed from (PEP 610), and nothing for a package of an index.
    """
    if (CHECKOUT / "manage.py").exists():
        return f"{with_extras(extras)} @ {CHECKOUT.as_uri()}"
    try:
        noted = distribution(DISTRIBUTION).read_text("direct_url.json")
    except PackageNotFoundError:
        noted = None
    return f"{with_extras(extras)} @ {json.loads(noted)['url']}" if noted else with_extras(extras)
