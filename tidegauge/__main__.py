"""`python -m tidegauge`: the command `tidegauge`, for environments where its script is not on the path."""

import sys

from tidegauge.cli import main

# Set because Django's messages would otherwise say `python -m django`.
sys.argv[0] = "tidegauge"
main()
