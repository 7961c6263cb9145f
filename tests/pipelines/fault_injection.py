"""Accidents that strike a pipeline in mid-batch, once."""


class InjectedFault(Exception):
    """What strikes in mid-batch."""


class FaultAfterCheck(list):
    """An accident that spares the check of the pipeline, which runs every step once on no rows."""

    def __init__(self, skip):
        super().__init__(["struck"])
        self.skip = skip

    def __bool__(self):
        self.skip -= 1
        return self.skip < 0 and len(self) > 0
