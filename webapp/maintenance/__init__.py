"""What people and the schedule do to states and pipelines: maintenance runs, renames, pauses, rewinds, replays."""
