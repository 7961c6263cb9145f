"""Where events come from, and what each source promises when a batch is replayed."""
