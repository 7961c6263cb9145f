"""Puts the headings of the documentation into the wheel for the console's search, because docs/ is not in the wheel."""

import json
import tempfile
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SEARCH = "tidegauge/webapp/console/dashboard/search"


class HeadingsOfDocs(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        spec = spec_from_file_location("headings", Path(self.root, SEARCH, "headings.py"))
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        self._folder = tempfile.TemporaryDirectory()
        index = Path(self._folder.name, "headings.json")
        index.write_text(json.dumps(list(module.read(Path(self.root, "docs"))), ensure_ascii=False), encoding="utf-8")
        build_data["force_include"][str(index)] = f"{SEARCH}/headings.json"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        self._folder.cleanup()
