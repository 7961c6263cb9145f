"""Faults that fail a pipeline once, during a batch."""


class InjectedFault(Exception):
    """Raised during a batch."""


class FaultAfterCheck(list):
    """A fault that skips the first `skip` runs of a step: the check of a pipeline runs every step once on no rows."""

    def __init__(self, skip):
        super().__init__(["injected"])
        self.skip = skip

    def __bool__(self):
        self.skip -= 1
        return self.skip < 0 and len(self) > 0
