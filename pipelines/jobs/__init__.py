"""The pipelines this project ships, by name; each takes the folder its input lands in."""

from pipelines.jobs.flights import flights
from pipelines.jobs.word_count import word_count

JOBS = {"flights": flights, "word_count": word_count}
