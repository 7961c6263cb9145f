#!/usr/bin/env python
"""Runs the command `tidegauge` in a checkout, where the package is not installed."""

from tidegauge.cli import main

if __name__ == "__main__":
    main()
