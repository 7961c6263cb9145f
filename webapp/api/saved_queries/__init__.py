"""Saved queries: named, versioned reads of states with typed parameters, each at an address of its own."""
