"""The pipelines this project ships, by name; each takes the folder its input lands in."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pipelines.errors import PipelineError
from pipelines.jobs.flights import flights
from pipelines.jobs.word_count import word_count
from pipelines.pipeline import Pipeline

JOBS: dict[str, Callable[..., Pipeline]] = {"flights": flights, "word_count": word_count}


def job(name: str, folder: Path, files_per_batch: int | None = None) -> Pipeline:
    """Return the pipeline of a job over a folder, described by the first line of the job's docstring.

    Raises PipelineError with the names there are.
    """
    if name not in JOBS:
        raise PipelineError(f"pipeline {name!r} does not exist; there are {', '.join(sorted(JOBS))}")
    limits = {} if files_per_batch is None else {"files_per_batch": files_per_batch}
    summary = (inspect.getdoc(JOBS[name]) or "").partition("\n")[0]
    return replace(JOBS[name](folder, **limits), description=summary)
