"""Who may write, which batch is open, which is committed, and what each batch held."""
