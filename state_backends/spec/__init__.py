"""What a state is: its key, measures, types and table."""
