"""Operations on states and pipelines, by people and by the schedule: runs, renames, pauses, rewinds, replays."""
