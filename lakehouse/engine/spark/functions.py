"""PySpark's functions of columns. They are imported when the first one is asked for: a process that only reads logs loads no PySpark."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.functions import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]
else:

    def __getattr__(name: str) -> Any:
        if name.startswith("__"):  # whoever looks at modules asks for such names
            raise AttributeError(name)
        return getattr(import_module("pyspark.sql.functions"), name)
