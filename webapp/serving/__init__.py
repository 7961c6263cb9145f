"""How processes serve: the front that reads requests, request ids and logs, health, stored metrics."""
