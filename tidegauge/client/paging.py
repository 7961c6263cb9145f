"""Pages of one request, each read with the cursor of the previous one."""

from collections.abc import Mapping


class Paging:
    """parameters: those of the first page. most: the maximum number of items; None: all. page_size: items per page."""

    def __init__(self, parameters: Mapping[str, str | list[str]], most: int | None, page_size: int) -> None:
        self._parameters = dict(parameters)
        self._left = most
        self._page_size = page_size
        self.ended = most == 0

    @property
    def parameters(self) -> dict[str, str | list[str]]:
        """The parameters of the next page."""
        size = self._page_size if self._left is None else min(self._page_size, self._left)
        return {**self._parameters, "limit": str(size)}

    def passed(self, items: int, cursor: str | None) -> None:
        """Continue after a page. items: their number on that page. cursor: for the next page; None on the last one."""
        if self._left is not None:
            self._left -= items
        self.ended = cursor is None or self._left == 0
        self._parameters = {} if cursor is None else {"cursor": cursor}
