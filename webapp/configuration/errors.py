"""What is wrong with a configuration, for the command line and the API."""


class ConfigurationError(ValueError):
    """Files cannot be applied, or the configuration cannot be exported: the message has the place and what to do."""
