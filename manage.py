#!/usr/bin/env python
"""The command `tidegauge` in a checkout, where nothing is installed."""

from tidegauge.cli import main

if __name__ == "__main__":
    main()
