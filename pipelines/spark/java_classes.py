"""Caches the Java classes that PySpark looks up in every call.

Each lookup costs a message to Java and back. For a name without its package Java also searches all of Spark's jars, for
every package that the name might be in. A small batch makes 200 lookups.
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
    """Store the classes as attributes of PySpark's view of Java, which it checks first. Some versions lack some."""
    for name in ASKED_FOR:
        if name not in vars(jvm) and isinstance(found := getattr(jvm, name), JavaClass):
            setattr(jvm, name, found)
