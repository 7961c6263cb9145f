"""Examples, one per module: a function of the same name takes the folder of its input files (order_totals: a table)."""
