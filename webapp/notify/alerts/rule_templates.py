"""What new rules can begin with."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidegauge.webapp.notify.alerts.rules import USUAL


@dataclass(frozen=True)
class RuleTemplate:
    """fields: of AlertRule."""

    title: str
    says: str
    fields: Mapping[str, Any]


TEMPLATES = {
    "usual": RuleTemplate(
        "A pipeline or state has a problem",
        "It failed, is lost, stale, or rejects input; or a state is not served.",
        {"verdicts": USUAL, "after_seconds": 60},
    ),
    "down": RuleTemplate(
        "A pipeline is down",
        "Its driver has failed or is lost, and nothing is counted.",
        {"verdicts": ["failed", "lost"], "after_seconds": 60},
    ),
    "behind": RuleTemplate(
        "A pipeline falls behind",
        "Its lag is above its limit, or grows, for ten minutes.",
        {"verdicts": ["stale", "falling behind"], "after_seconds": 600},
    ),
    "rejecting": RuleTemplate(
        "Input is rejected",
        "Many rows of recent batches are dead letters.",
        {"verdicts": ["rejecting"], "after_seconds": 60},
    ),
    "silent": RuleTemplate(
        "Nothing was committed for an hour",
        "The newest batch is older, whether or not the pipeline runs or has input.",
        {"verdicts": [], "batch_gap_seconds": 3_600, "after_seconds": 0},
    ),
}
