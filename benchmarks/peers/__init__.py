"""Other systems as references. Each has a separate environment, which `python -m benchmarks.peers NAME` creates."""
