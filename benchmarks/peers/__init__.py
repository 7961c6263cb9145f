"""Other systems as references. Each has an environment of its own, which `python -m benchmarks.peers NAME` makes."""
