"""How a run of tests is set up: its servers, its database, which tests it has, in which order, and what they cost."""
