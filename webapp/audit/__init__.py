"""Who did what, and when: a row for every act on states, pipelines and API keys."""
