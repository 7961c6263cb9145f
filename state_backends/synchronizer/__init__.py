"""An object that many processes change together, rebuilt by each of them from one ordered log of updates."""
