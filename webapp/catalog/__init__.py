"""Reads pipelines, states, batches, runs and members; says who may see which, and gives the verdict on pipelines."""
