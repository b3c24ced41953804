"""The checkout that this code runs from."""

from pathlib import Path

import lakehouse

ROOT = Path(lakehouse.__file__).resolve().parents[1]
STATE = ROOT / ".lakehouse"  # what all lakes of this checkout share: jars, the wheel's Java
