"""The checkout that this code runs from, or where it was installed as a package, the folder that it is used in."""

from pathlib import Path

import lakehouse

_HOME = Path(lakehouse.__file__).resolve().parents[1]
ROOT = _HOME if (_HOME / "pyproject.toml").is_file() else Path.cwd()
STATE = ROOT / ".lakehouse"  # what all lakes of this checkout share: jars, the wheel's Java
