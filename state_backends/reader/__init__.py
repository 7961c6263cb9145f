"""Reading a state: lookups, pages, groups, histories, exports and changes, at one batch."""
