"""Where pip finds the Tidegauge that runs here: on the package index, in a checkout, or in a wheel."""

import json
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from tidegauge.state_backends.extras import DISTRIBUTION, with_extras

CHECKOUT = Path(__file__).absolute().parents[1]


def requirement(extras: str) -> str:
    """Return what installs this very Tidegauge with extras: `tidegauge[spark]`, and where it is if not on an index.

    Pip notes the address of a file or folder that it installed from (PEP 610), and nothing for a package of an index.
    """
    if (CHECKOUT / "manage.py").exists():
        return f"{with_extras(extras)} @ {CHECKOUT.as_uri()}"
    try:
        noted = distribution(DISTRIBUTION).read_text("direct_url.json")
    except PackageNotFoundError:
        noted = None
    return f"{with_extras(extras)} @ {json.loads(noted)['url']}" if noted else with_extras(extras)
