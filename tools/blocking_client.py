"""Generates the blocking calls of `tidegauge.client` from the async ones, such as `client.py` from `async_client.py`.

Run `python -m tools.blocking_client` in the checkout after each change of an async file.
"""

import re
from pathlib import Path

from tidegauge.pipelines.embedded.data_dir import REPOSITORY

FOLDER = REPOSITORY / "tidegauge" / "client"
NAMES = ("client", "state", "saved_query")

HEAD = '''"""The calls of a {what}. Generated from async_{name}.py by tools/blocking_client.py: edit that file."""'''

WORDS = [
    (r"\basync (?=def|for|with)", ""),
    (r"\bawait ", ""),
    (r"\bAsync(?=Client\b(?! downloads)|State|SavedQuery|Iterator|Transport|Renew)", ""),
    (r"\basync_(?=transport|client|state|saved_query)", ""),
    (r"__a(enter|exit)__", r"__\1__"),
    (r"for (\w+) in (.+):\n +yield \1\n", r"yield from \2\n"),
]


def asynchronous(name: str) -> Path:
    return FOLDER / f"async_{name}.py"


def blocking(name: str) -> Path:
    return FOLDER / f"{name}.py"


def without_await(name: str) -> str:
    text = re.sub(r"\A\"\"\".*?\"\"\"", "", asynchronous(name).read_text(), flags=re.DOTALL)
    for pattern, word in WORDS:
        text = re.sub(pattern, word, text)
    text = HEAD.format(what=name.replace("_", " "), name=name) + text
    imports = re.findall(r"^from tidegauge\.client.*\n", text, flags=re.MULTILINE)
    start = text.index(imports[0])
    return text[:start] + "".join(sorted(imports)) + text[start + len("".join(imports)) :]


def main() -> None:
    for name in NAMES:
        blocking(name).write_text(without_await(name))


if __name__ == "__main__":
    main()
