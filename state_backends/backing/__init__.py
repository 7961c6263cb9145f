"""Where the rows of a state live: one file per backend."""
