"""Remedies: what an operator types after each refusal, as docs/recovery.md says."""

from tests.soak.recovery import Remedy

REMEDIES: list[Remedy] = []
