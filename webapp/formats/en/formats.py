"""How the admin writes times: to the second, in UTC, in an order that sorts."""

DATETIME_FORMAT = r"Y-m-d H:i:s \U\T\C"
