"""Tidegauge's version, which the package's root has."""

import sys


def version() -> str:
    # Not imported, because imports from the root would be a cycle: the root imports every layer.
    return str(sys.modules["tidegauge"].__version__)
