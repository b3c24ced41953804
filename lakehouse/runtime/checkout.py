"""The project's folder: the checkout or, for an installed package, the working folder."""

from pathlib import Path

import lakehouse

_HOME = Path(lakehouse.__file__).resolve().parents[1]
ROOT = _HOME if (_HOME / "pyproject.toml").is_file() else Path.cwd()
# All lakes of this checkout share the jars and the Java from the wheel.
STATE = ROOT / ".lakehouse"
