"""Saves messages to Java, of which a small batch sent 190: each takes 0.1 to 0.3 ms.

Each lookup of a class costs a message to Java and back, and so does each lookup of one of its static methods. For a
name without its package Java also searches all of Spark's jars, for every package that the name might be in. A list is
sent item by item. So classes and static methods are looked up once, and the items of a list are sent together.
"""

from collections.abc import Sequence
from typing import Any

from py4j.java_collections import JavaArray
from py4j.java_gateway import JavaClass, JavaMember, JavaObject
from py4j.protocol import STATIC_PREFIX

ASKED_FOR = (
    "PythonRDD",
    "PythonSQLUtils",
    "PythonUtils",
    "SerDeUtil",
    "SimplePythonFunction",
    "functions",
    "org.apache.spark.sql.api.python.PythonSQLUtils",
    "org.apache.spark.sql.catalyst.trees.PySparkCurrentOrigin",
    "org.apache.spark.sql.classic.SparkSession",
    "org.apache.spark.sql.classic.SparkSession$",
    "org.apache.spark.sql.execution.python.UserDefinedPythonFunction",
    "org.apache.spark.sql.functions",
    "org.apache.spark.sql.streaming.Trigger",
)

SINGLETON = "MODULE$"  # the field with the only instance of a Scala `object`

MOST_ITEMS = 10  # that `List.of` takes


def keep_classes(jvm: Any) -> None:
    """Store the classes as attributes of PySpark's view of Java, which it checks first. Some versions lack some."""
    client = jvm._gateway_client
    if not isinstance(client.converters[0], ListSender):
        client.converters = [ListSender(client), *client.converters]
    for name in ASKED_FOR:
        if name not in vars(jvm) and isinstance(found := getattr(jvm, name), JavaClass):
            setattr(jvm, name, KnownClass(found._fqn, client))


def java_class(jvm: Any, name: str) -> Any:
    """Return a class by its full name, without asking Java. One that does not exist is noticed when it is used.

    As `jvm.java.util.HashMap` it would be looked for in parts, and the first part in all of Spark's jars: 1 to 4 ms.
    """
    if name not in vars(jvm):
        setattr(jvm, name, KnownClass(name, jvm._gateway_client))
    return vars(jvm)[name]


class KnownClass(JavaClass):  # type: ignore[misc]
    """A Java class that remembers its static methods. A static field is read each time, because it may change."""

    def __getattr__(self, name: str) -> Any:
        member = super().__getattr__(name)
        if name == SINGLETON or isinstance(member, JavaMember):
            setattr(self, name, member)
        return member


class ListSender:
    """Converts a list of texts and Java objects to an ArrayList, as py4j does, but with ten items per message."""

    def __init__(self, client: Any) -> None:
        self._array_list = JavaClass("java.util.ArrayList", client)
        self._list_of = JavaMember("of", None, f"{STATIC_PREFIX}java.util.List", client)

    def can_convert(self, given: Any) -> bool:
        return isinstance(given, list | tuple) and len(given) > 1 and all(map(_is_plain, given))

    def convert(self, given: Sequence[str | JavaObject], client: Any) -> JavaObject:
        converted = self._array_list(self._list_of(*given[:MOST_ITEMS]))
        for first in range(MOST_ITEMS, len(given), MOST_ITEMS):
            converted.addAll(self._list_of(*given[first : first + MOST_ITEMS]))
        return converted


def _is_plain(item: Any) -> bool:
    # An array would be taken for the items themselves.
    return isinstance(item, str | JavaObject) and not isinstance(item, JavaArray)
