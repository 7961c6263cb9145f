#!/usr/bin/env python
"""The command `tidemark` in a checkout, where nothing is installed."""

from tidemark.cli import main

if __name__ == "__main__":
    main()
