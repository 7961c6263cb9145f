"""What a user declares: streams, their verbs, windows and rules, and the pipeline that they feed states in."""
