"""What a query string says, read with good will: what makes no sense in it counts as not asked."""

# The largest number that PostgreSQL's bigint holds.
LARGEST = 2**63 - 1


def whole_number(text: str) -> int | None:
    """Return a number from 0 on, None for anything else."""
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        return None
    number = int(text)
    return number if number <= LARGEST else None
