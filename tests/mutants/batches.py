"""Mutants of what a batch asks of Spark and of Java."""

from tests.mutants.mutant import Mutant

OBSERVED = "pipelines/spark/observed.py"
JAVA = "pipelines/spark/java_classes.py"

FIGURES = ["tests/pipelines/spark/test_observed.py"]
MESSAGES = ["tests/pipelines/spark/test_java_classes.py"]

MUTANTS = [
    Mutant(
        "batches/figures-of-a-later-job-replace-those-of-the-first",
        OBSERVED,
        "if self._figures is None and (row",
        "if (row",
        FIGURES,
    ),
    Mutant(
        "batches/figures-of-a-job-that-has-not-read-the-frame-are-asked-for",
        OBSERVED,
        "        if not self._metrics.contains(name):\n            return None\n",
        "",
        FIGURES,
    ),
    Mutant(
        "batches/a-second-job-counts-the-input",
        "pipelines/batch/runner.py",
        "            batch_input.take(job.metrics())\n",
        "",
        MESSAGES,
    ),
    Mutant(
        "batches/static-methods-are-looked-up-at-each-call",
        JAVA,
        "            setattr(self, name, member)\n",
        "            pass\n",
        MESSAGES,
    ),
    Mutant(
        "batches/a-list-is-cut-after-ten-items",
        JAVA,
        "range(MOST_ITEMS, len(given), MOST_ITEMS)",
        "range(0)",
        MESSAGES,
    ),
]
