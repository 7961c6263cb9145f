"""Secrets out of log lines: the last thing that happens to a line, whoever wrote it and however it got there."""

import re

# What must be in a line before it is worth a closer look; most lines hold none of these.
HINTS = ("tmk_", "://", "assword")

FORMS = (
    (re.compile(r"(tmk_[0-9a-f]{8}_)[\w-]+"), r"\1***"),  # an API key; the prefix names it and opens nothing
    (re.compile(r"(://[^/\s:@\"']*:)[^\s\"'/]+@"), r"\1***@"),  # a URL with a password
    (re.compile(r"(password\"?'?\s*[=:]\s*\"?'?)[^\s\"',}]+", re.IGNORECASE), r"\1***"),  # libpq's words, and reprs
)


def redacted(line: str) -> str:
    """Return a line with `***` in place of API keys' secrets and of passwords."""
    if any(hint in line for hint in HINTS):
        for form, instead in FORMS:
            line = form.sub(instead, line)
    return line
