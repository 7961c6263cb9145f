"""Pages as a reader sees them."""

import re
from html import unescape
from urllib.parse import unquote


def text(response) -> str:
    """What a reader sees of a page, in one line."""
    body = re.sub(r"<(head|svg).*?</\1>|<[^>]+>", " ", response.content.decode(), flags=re.DOTALL)
    return " ".join(unescape(body).split())


def with_steady_ages(response) -> str:
    """The same with ages below two minutes as "just now", so that it does not depend on the speed of the machine."""
    return re.sub(r"\b\d+ s ago", "just now", text(response))


def following(response) -> str | None:
    """The address of the next page."""
    link = re.search(r'rel="next"\s+href="([^"]*)"', response.content.decode())
    return unescape(link[1]) if link else None


def keys(response) -> list[str]:
    """The keys of the table of entries, as JSON."""
    table = response.content.decode().partition('<table class="explored entries">')[2].partition("</table>")[0]
    return [unquote(key) for key in re.findall(r'id="entry-([^"]*)"', table)]
