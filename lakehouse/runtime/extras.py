"""Checks whether packages from the project's extras, like `lakehouse[s3]`, are installed."""

from importlib.util import find_spec

from lakehouse.core.errors import Refused


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
