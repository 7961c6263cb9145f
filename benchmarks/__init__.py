"""What Tidemark's speed is measured by: ratios against a limit or a peer, taken in one run on one machine."""
