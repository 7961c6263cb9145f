"""Which batches ran, what they changed, and trimming what nobody needs any more."""
