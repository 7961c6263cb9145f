"""The accepted pictures of all pages, and with which Chromium and fonts they were taken."""

import json
import re
import shutil
import subprocess
from pathlib import Path

from PIL import Image

from tests.webapp.pictures import comparison
from tests.webapp.pictures.camera import Look

ACCEPTED = Path(__file__).parent / "accepted"
VERSIONS = "versions.json"


class Album:
    """Compares pictures with the accepted ones.

    folder: of the accepted pictures. differences: an empty folder for those that differ. accepts: replace them instead.
    """

    def __init__(self, folder: Path, differences: Path, accepts: bool) -> None:
        self.faults: list[str] = []
        self._folder = folder
        self._differences = differences
        self._accepts = accepts
        self._left = {path.name for path in folder.glob("*.webp")}

    def compare(self, path: str, look: Look, actual: Image.Image) -> None:
        name = file_name(path, look)
        accepted = Image.open(self._folder / name).convert("RGB") if name in self._left else None
        self._left.discard(name)
        fault = comparison.fault(actual, accepted, look.scale) if accepted else "is new, without an accepted picture"
        if fault and self._accepts:
            comparison.save(actual, self._folder / name)
        elif fault:
            self.faults.append(f"{path} at {look.width} px, {look.theme}: {fault} ({name})")
            comparison.side_by_side(actual, accepted or actual).save((self._differences / name).with_suffix(".png"))

    def close(self, versions: dict[str, str]) -> str:
        """Look for pictures of pages that are gone. Returns which versions are others than when they were accepted."""
        kept = self._folder / VERSIONS
        if self._accepts:
            for name in self._left:
                (self._folder / name).unlink()
            kept.write_text(json.dumps(versions, indent=2) + "\n")
        else:
            self.faults += [f"{name} is stale: no page belongs to it" for name in sorted(self._left)]
        accepted = json.loads(kept.read_text()) if kept.exists() else {}
        return "; ".join(
            f"{name} {version}, accepted with {accepted.get(name)}"
            for name, version in versions.items()
            if accepted.get(name) != version
        )

    def report(self) -> str:
        return "\n".join(
            [
                f"{len(self.faults)} pictures differ:",
                *self.faults,
                f"look at actual, accepted and what differs, side by side, in {self._differences}",
                "make pictures ACCEPT=1 accepts all of them",
            ]
        )


def file_name(path: str, look: Look) -> str:
    words = re.sub(r"\W+", "-", path).strip("-") or "overview"
    return f"{words}-{look.width}-{look.theme}.webp"


def font(family: str) -> str:
    """Return the font that stands for a generic family on this machine, with its version."""
    if shutil.which("fc-match") is None:
        return "unknown"
    asked = ["fc-match", "--format", "%{family} %{fontversion}", family]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout
