"""What users declare: streams and their verbs, windows, rules, and the pipelines that feed states."""
