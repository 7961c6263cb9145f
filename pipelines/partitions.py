"""How many tasks a step of a batch is spread over, where each of them holds a connection."""

from pyspark.sql import DataFrame


def at_most(partitions: int, rows: DataFrame) -> DataFrame:
    """Return the rows in so many partitions or fewer."""
    # Planning is most of the time of a small batch; where there cannot be more there is nothing to plan.
    spark = rows.sparkSession
    most = max(int(spark.conf.get("spark.sql.shuffle.partitions") or 1), spark.sparkContext.defaultParallelism)
    return rows.coalesce(partitions) if most > partitions else rows
