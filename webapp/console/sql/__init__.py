"""SQL of people over the live views, as a database role that can read nothing else."""
