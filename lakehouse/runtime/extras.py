"""The extras of the package: what `pip install lakehouse` alone does not bring."""

from importlib.util import find_spec

from lakehouse.core.errors import Refused


def is_installed(module: str) -> bool:
    """Whether Python finds a top-level module; it is not imported."""
    return find_spec(module) is not None


def require(module: str, *, extra: str, purpose: str) -> None:
    """Refuses a `purpose` (like `a lake on S3`) whose module is not installed.

    Raises:
        Refused: with the command that installs the extra.
    """
    if not is_installed(module):
        raise Refused(
            f"{purpose} needs the Python package {module}, which is not installed. Use "
            f"pip install 'lakehouse[{extra}]'"
        )
