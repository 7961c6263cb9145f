"""Java's classes that PySpark asks for in every call, kept so that it asks once.

Each time costs a message to Java and back. A name without its package costs Java a search through all of Spark's jars
too, for every package that the name might be in. A small batch asks 200 times.
"""

from typing import Any

from py4j.java_gateway import JavaClass

ASKED_FOR = (
    "PythonRDD",
    "PythonUtils",
    "SimplePythonFunction",
    "functions",
    "org.apache.spark.sql.Observation",
    "org.apache.spark.sql.api.python.PythonSQLUtils",
    "org.apache.spark.sql.catalyst.trees.PySparkCurrentOrigin",
    "org.apache.spark.sql.classic.SparkSession",
    "org.apache.spark.sql.classic.SparkSession$",
    "org.apache.spark.sql.execution.python.UserDefinedPythonFunction",
    "org.apache.spark.sql.functions",
)


def keep_classes(jvm: Any) -> None:
    """Keep the classes as attributes of PySpark's view of Java, which it looks at first; a Spark may lack some."""
    for name in ASKED_FOR:
        if name not in vars(jvm) and isinstance(found := getattr(jvm, name), JavaClass):
            setattr(jvm, name, found)
