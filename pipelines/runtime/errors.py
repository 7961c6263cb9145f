"""The one error a door has to print: something that Tidemark runs on is missing or broken."""


class RuntimeSetupError(Exception):
    """A server or a tool cannot be started here; the message says where, which value and what to do."""
