"""Where settings come from, and where this installation and its data are."""

from pathlib import Path

import environ

env = environ.Env()

# The checkout, or the working folder where pip has installed the packages: pipelines' project_dir, without pipelines.
BASE_DIR = Path(__file__).absolute().parents[4]  # links are not resolved: in a checkout tidegauge/webapp is one
if not (BASE_DIR / "manage.py").exists():
    BASE_DIR = Path.cwd()
DATA_DIR = Path(env.str("TIDEGAUGE_HOME", default="") or BASE_DIR / ".tidegauge").resolve()
DEBUG = env.bool("DEBUG", default=False)
