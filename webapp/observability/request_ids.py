"""Whose id a request bears: the client's own `X-Request-ID` where that is a sane one, so that it can be followed from
system to system; else one that is made here.
"""

import re
from secrets import token_hex

SANE = re.compile(r"[\w.:-]{1,64}", re.ASCII)


def request_id(asked: str) -> str:
    return asked if SANE.fullmatch(asked) else token_hex(12)
