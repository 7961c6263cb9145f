"""Rules: what a user requires of the rows of a stream. A row that breaks one becomes a dead letter (rule_rows.py).

Other tools call them expectations. The condition of a rule is true for the rows that break it.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegauge.pipelines.declare.context import BatchContext
from tidegauge.pipelines.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# A reason fits into one line of a page, and is well below the length by which letters are grouped (REASON_PATTERN).
MAX_REASON_CHARACTERS = 200


@dataclass(frozen=True)
class Rule:
    """Rejects the rows for which `condition`, in Spark SQL, is true. reason: what their dead letters say.

    Raises PipelineError for a condition that is empty, and for a reason that is not one line of 1 to 200 characters.
    """

    condition: str
    reason: str

    def __post_init__(self) -> None:
        if not self.condition.strip():
            raise PipelineError(f"{self}: has no condition; give what is true for a row to reject, such as 'price < 0'")
        if not self.reason.strip() or not self.reason.isprintable() or len(self.reason) > MAX_REASON_CHARACTERS:
            raise PipelineError(
                f"reject({self.condition!r}): reason {self.reason[:MAX_REASON_CHARACTERS]!r} "
                f"({len(self.reason)} characters) is not one line of 1 to {MAX_REASON_CHARACTERS} characters; say "
                "what is wrong with such a row, for example 'price below zero'"
            )

    @property
    def is_broken(self) -> "Column":
        """The condition as a column, false where it is null. CASE accepts only a boolean, as `where` does."""
        from pyspark.sql import functions as F

        return F.when(F.expr(self.condition), True).otherwise(False)

    @property
    def letter_reason(self) -> str:
        return f"rejected: {self.reason}"

    def keep(self, context: BatchContext, events: "DataFrame") -> "DataFrame":
        """Return the rows that do not break the rule: the step of its stream."""
        return events.where(~self.is_broken)

    def __str__(self) -> str:
        return f"reject({self.condition!r}, reason={self.reason!r})"
