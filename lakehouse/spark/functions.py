"""PySpark's column functions, imported on first use, because reading logs needs no PySpark."""

# pyright: reportWildcardImportFromLibrary=false

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.functions import *  # noqa: F403
else:

    def __getattr__(name: str) -> Any:
        if name.startswith("__"):  # tools that inspect modules request these
            raise AttributeError(name)
        return getattr(import_module("pyspark.sql.functions"), name)
