"""`python -m tidegauge`: the command, where its script is not on the path."""

import sys

from tidegauge.cli import main

# Else Django would call itself `python -m django`.
sys.argv[0] = "tidegauge"
main()
