"""One micro-batch: its input, the plan of its states, and what an executor's tasks do."""
