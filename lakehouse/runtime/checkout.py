"""The project's folder: the checkout, or the working folder if the package was installed."""

from pathlib import Path

import lakehouse

_HOME = Path(lakehouse.__file__).resolve().parents[1]
ROOT = _HOME if (_HOME / "pyproject.toml").is_file() else Path.cwd()
# Shared by all lakes of this checkout: the jars, and Java from the wheel.
STATE = ROOT / ".lakehouse"
