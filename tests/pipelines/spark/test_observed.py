"""Figures of a batch's input come from the job that reads it."""

import pytest
from pyspark.sql import functions as F

from tidegauge.pipelines.spark.observed import JobMetrics, Observed

pytestmark = pytest.mark.spark


def observed(spark, rows=3):
    return Observed(spark.range(rows).toDF("n"), F.expr("count(1) AS rows"), F.expr("count_if(n > 0) AS positive"))


def jobs(spark):
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup(None))


def test_the_job_that_reads_a_frame_gives_its_figures(spark):
    seen = observed(spark)
    kept = seen.frame.where("n > 1").cache()
    union = kept.unionByName(kept)
    union.collect()
    before = jobs(spark)

    seen.take(JobMetrics(union))

    assert seen.figures == {"rows": 3, "positive": 2}
    assert jobs(spark) == before
    kept.unpersist()


def test_a_frame_that_no_job_has_read_is_counted_when_its_figures_are_asked_for(spark):
    seen = observed(spark)
    other = spark.range(1)
    other.collect()

    seen.take(JobMetrics(other))

    assert seen.figures == {"rows": 3, "positive": 2}


def test_the_figures_of_the_first_job_stay(spark):
    seen = observed(spark)
    first, second = seen.frame.where("n >= 0"), seen.frame.limit(1)
    first.collect()
    seen.take(JobMetrics(first))

    second.collect()
    seen.take(JobMetrics(second))

    assert seen.figures == {"rows": 3, "positive": 2}
