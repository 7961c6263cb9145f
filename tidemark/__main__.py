"""`python -m tidemark`: the command, where its script is not on the path."""

import sys

from tidemark.cli import main

# Else Django would call itself `python -m django`.
sys.argv[0] = "tidemark"
main()
