"""Which value counts: the three map kinds over any backing map, and what folds into them."""
