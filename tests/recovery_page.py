"""docs/recovery.md as its tests read it: the messages, commands and SQL of each finding.

A test names the finding and runs all that its section shows, by unpacking it: `[look, mend] = commands("..")` fails
where a command is added. tests/test_recovery_page.py fails where no test names a finding that shows something.
"""

import re
import shlex

from tidegauge.cli import SHORT
from tidegauge.pipelines.embedded.data_dir import REPOSITORY

PAGE = (REPOSITORY / "docs" / "recovery.md").read_text()
FINDINGS = dict(re.findall(r"^### ([^\n]*)\n(.*?)(?=^##|\Z)", PAGE, re.DOTALL | re.MULTILINE))

WORDS_OF_A_MESSAGE = 4  # at least; shorter code is a name, such as `epoch`


def commands(finding: str) -> list[str]:
    """Return the lines of a finding's commands, in order."""
    return re.findall(r"^    (\S.*)$", FINDINGS[finding], re.MULTILINE)


def statements(finding: str) -> list[str]:
    """Return the SQL statements of a finding, one a line, in order."""
    blocks = re.findall(r"```sql\n(.*?)```", FINDINGS[finding], re.DOTALL)
    return [statement for block in blocks for statement in block.strip().split("\n")]


def messages(finding: str) -> list[str]:
    """Return what a finding has under **You see**, each message on one line as the page shows it."""
    seen = FINDINGS[finding].partition("**You see**")[2].partition("**It means**")[0]
    shown = (" ".join(code.split()) for code in re.findall(r"`([^`]*)`", seen))
    return [message for message in shown if len(message.split()) >= WORDS_OF_A_MESSAGE]


def message_of(finding: str, number: int = 1) -> str:
    """Return a pattern for the message of that number, from 1.

    `..` stands for more text, a number for any number, a quoted name for any name.
    """
    shown = messages(finding)[number - 1].replace("...", "..")
    parts = re.split(r"(\.\.|\d[\d:]*|(?<!\w)'[^']*'(?!\w))", shown)
    return "".join(".*?" if place % 2 else re.escape(part) for place, part in enumerate(parts))


def arguments(command: str, **values: str) -> list[str]:
    """Return the words after `tidegauge`, with placeholders such as NAME filled in."""
    program, *words = shlex.split(command)
    assert program == "tidegauge"
    return [SHORT.get(words[0], words[0]), *(values.get(word, word) for word in words[1:])]
