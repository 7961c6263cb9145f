"""What exists: pipelines, states, batches, runs and members, who sees which, and the verdict on each. It only reads."""
