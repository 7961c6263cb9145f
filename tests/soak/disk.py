"""Disk: the folder of the servers' data, where root may mount one that can be filled up."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SIZE_MEGABYTES = 3_000
LEFT_BYTES = 200_000


class Disk:
    """A file system in memory, for root; else a folder as any other. is_own: whether it is the first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.is_own = os.geteuid() == 0 and self._mount()
        # PostgreSQL of root runs as another user, which must be able to enter.
        folder.chmod(0o711)

    @contextmanager
    def full(self) -> Iterator[None]:
        """Leave no room for a segment of PostgreSQL's log within the block."""
        ballast = self.folder / "ballast"
        try:
            self._fill(ballast)
            yield
        finally:
            ballast.unlink(missing_ok=True)

    def close(self) -> None:
        if self.is_own:
            subprocess.run(["umount", "--lazy", str(self.folder)], check=False)  # noqa: S607

    def _fill(self, ballast: Path) -> None:
        while True:
            free = os.statvfs(self.folder)
            # The servers write meanwhile, so there may be less by the time it is asked for.
            with ballast.open("wb") as file, suppress(OSError):
                os.posix_fallocate(file.fileno(), 0, max(1, free.f_bavail * free.f_frsize - LEFT_BYTES))
                return

    def _mount(self) -> bool:
        words = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MEGABYTES}m", "tmpfs", str(self.folder)]
        return subprocess.run(words, capture_output=True, check=False).returncode == 0
