"""Examples: a module each, with a function of the same name that takes the folder its input files land in."""
