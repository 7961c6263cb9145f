"""Writes `tidemark/client/client.py` from `async_client.py`: the same calls without `await`."""

import re
from pathlib import Path

from pipelines.embedded.data_dir import REPOSITORY

FOLDER = REPOSITORY / "tidemark" / "client"
ASYNC, SYNC = FOLDER / "async_client.py", FOLDER / "client.py"

HEAD = (
    '''"""The calls of a client. `async_client.py` has the same calls, to await, and this file is written from it."""'''
)

WORDS = [
    (r"\A\"\"\".*?\"\"\"", HEAD),
    (r"\basync (?=def|for|with)", ""),
    (r"\bawait ", ""),
    (r"\bAsync(?=Client\b(?! downloads)|State|Iterator|Transport)", ""),
    (r"\basync_transport\b", "transport"),
    (r"__a(enter|exit)__", r"__\1__"),
    (r"for entry in page:\n +yield entry", "yield from page"),
]


def without_await(text: str) -> str:
    for pattern, word in WORDS:
        text = re.sub(pattern, word, text, count=0, flags=re.DOTALL)
    imports = re.findall(r"^from tidemark\.client.*\n", text, flags=re.MULTILINE)
    start = text.index(imports[0])
    return text[:start] + "".join(sorted(imports)) + text[start + len("".join(imports)) :]


def main(sync: Path = SYNC) -> None:
    sync.write_text(without_await(ASYNC.read_text()))


if __name__ == "__main__":
    main()
