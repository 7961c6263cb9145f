"""The example pipelines, by name; each takes the folder that its input files land in."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pipelines.errors import PipelineError
from pipelines.jobs.ad_clicks import ad_clicks
from pipelines.jobs.customers import customers
from pipelines.jobs.flights import flights
from pipelines.jobs.latency import latency
from pipelines.jobs.page_views import page_views
from pipelines.jobs.regional_views import regional_views
from pipelines.jobs.search_index import search_index
from pipelines.jobs.sessions import sessions
from pipelines.jobs.traffic import traffic
from pipelines.jobs.trending import trending
from pipelines.jobs.unique_events import unique_events
from pipelines.jobs.word_count import word_count
from pipelines.pipeline import Pipeline

JOBS: dict[str, Callable[..., Pipeline]] = {
    "ad_clicks": ad_clicks,
    "customers": customers,
    "flights": flights,
    "latency": latency,
    "page_views": page_views,
    "regional_views": regional_views,
    "search_index": search_index,
    "sessions": sessions,
    "traffic": traffic,
    "trending": trending,
    "unique_events": unique_events,
    "word_count": word_count,
}


def job(name: str, folder: Path, files_per_batch: int | None = None) -> Pipeline:
    """Return the pipeline of a job over a folder, described by the first line of the job's docstring.

    Raises PipelineError, with the existing names, if there is no job of that name.
    """
    if name not in JOBS:
        raise PipelineError(f"pipeline {name!r} does not exist; there are {', '.join(sorted(JOBS))}")
    limits = {} if files_per_batch is None else {"files_per_batch": files_per_batch}
    summary = (inspect.getdoc(JOBS[name]) or "").partition("\n")[0]
    return replace(JOBS[name](folder, **limits), description=summary)
