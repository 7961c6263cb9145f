"""Keeps what a Python worker has imported out of garbage collection.

PySpark's daemon collects garbage in a worker after each task. A worker has some hundred thousand objects of modules,
which live as long as it does; to look at them takes some 60 ms of processor time.
"""

import gc


def keep_imports() -> None:
    """Exempt all objects that this process has now from garbage collection. Does nothing after the first call."""
    if not gc.get_freeze_count():
        gc.freeze()
