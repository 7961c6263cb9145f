"""The admin: what there is, to look at; and the two things to do with a state, compact it and expire it."""

from webapp.states.admin import maintenance, pipelines, schedule, states

__all__ = ["maintenance", "pipelines", "schedule", "states"]
