"""A client that openapi-python-client makes of an OpenAPI document, as a user would."""

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any


@contextmanager
def generated_client(
    document: Mapping[str, Any], package: str, folder: Path, *, settings: str = ""
) -> Iterator[ModuleType]:
    """Make the client in a folder, without a network, and yield its package. settings: more lines of its config."""
    (folder / "schema.json").write_text(json.dumps(document))
    (folder / "config.yml").write_text(f"post_hooks: []\npackage_name_override: {package}\n{settings}")
    made = subprocess.run(
        [
            Path(sys.executable).with_name("openapi-python-client"), "generate", "--path", "schema.json",
            "--config", "config.yml", "--meta", "none", "--output-path", package, "--fail-on-warning",
        ],
        cwd=folder, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stdout + made.stderr
    sys.path.insert(0, str(folder))
    try:
        yield importlib.import_module(package)
    finally:
        sys.path.remove(str(folder))
        for name in [name for name in sys.modules if name.partition(".")[0] == package]:
            del sys.modules[name]
