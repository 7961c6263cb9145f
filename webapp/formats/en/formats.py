"""How the admin writes times: to the second, in an order that sorts."""

DATETIME_FORMAT = "Y-m-d H:i:s"
