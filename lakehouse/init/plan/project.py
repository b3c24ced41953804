"""The texts of a project around one table of landed files, and the names in it."""

import re
import textwrap
from collections.abc import Callable, Iterable
from keyword import iskeyword

from lakehouse.base.text import printable
from lakehouse.declare.landing import format_of
from lakehouse.init.plan.source_text import python_source, python_text
from lakehouse.init.plan.suggestion import DMS_FILE, Suggestion
from lakehouse.land.plan.schema_of_values import quoted

_WIDTH = 100
_DECLARING = ("Append", "Csv", "Debezium", "Dms", "Landing", "Merge", "Table")
_ENV = """\
# Settings. In this folder, lakehouse and dagster dev read them, and they go before variables of
# the environment. All settings: lakehouse doctor --settings
LAKEHOUSE_HOME=.lakehouse
LAKEHOUSE_ROOT={root}
LAKEHOUSE_TABLES={package}
LAKEHOUSE_REPLAY=off
"""
_GITIGNORE = """\
.lakehouse/
.tmp_dagster_home_*/
__pycache__/
"""
_PYPROJECT = """\
[project]
name = "{package}"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["lakehouse[s3,spark]"]

[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[tool.setuptools]
packages = ["{package}"]

# Read by dagster dev and dg. LAKEHOUSE_TABLES in .env names the package with the tables.
[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "{package}"
code_location_name = "{package}"
code_location_target_module = "lakehouse.definitions"
"""
_BRONZE = '''\
"""Bronze: rows as they landed."""

from lakehouse import {names}

{comment}
{table}
'''
_SILVER = '''\
"""Silver: the rows that people use."""

from lakehouse import Overwrite, table
from pyspark.sql import DataFrame

from {package} import bronze


# Change the function: the next run computes all rows again. For a large table, use Append(), or
# Merge(keys=…, order_by=…) for one row per key. They read only new rows, and do not see which rows
# of change data were deleted.
@table(
    key="silver/{name}",
    inputs=[bronze.{name}],
    write=Overwrite(),
    evolution="automatic",
)
def {name}({name}: DataFrame) -> DataFrame:
    """The columns of bronze/{name} that people use."""
    return {name}.selectExpr(
{columns}
    )
'''


def project_texts(
    suggestion: Suggestion, *, package: str, root: str, origin: str
) -> dict[str, str]:
    """The files of a project by their paths.

    `package` is the Python package that declares the tables, `root` the root of their lake, as in
    LAKEHOUSE_ROOT, and `origin` names the files that the suggestion is from.
    """
    table = suggestion.table
    source = "\n".join(python_source(f"{table.name} = ", table))
    sentences = (f"Guessed by lakehouse init from {origin}. Check it.", *suggestion.notes)
    columns = [f"        {python_text(quoted(name))}," for name in table.landing.column_names]
    return {
        ".env": _ENV.format(package=package, root=root),
        ".gitignore": _GITIGNORE,
        "pyproject.toml": _PYPROJECT.format(package=package),
        f"{package}/__init__.py": f'"""The tables of {package}."""\n',
        f"{package}/bronze.py": _BRONZE.format(
            names=", ".join(name for name in _DECLARING if f"{name}(" in source),
            comment="\n".join(line for each in sentences for line in _comment(each)),
            table=source,
        ),
        f"{package}/silver.py": _SILVER.format(
            package=package, name=table.name, columns="\n".join(columns)
        ),
    }


def package_name(folder: str, is_taken: Callable[[str], bool]) -> str:
    """The Python package of a project in this folder. No other module has its name."""
    name = _plain(folder) or "tables"
    return f"{name}_tables" if iskeyword(name) or is_taken(name) else name


def table_name(places: Iterable[str]) -> str:
    """A name for a table, after the first file or folder whose name has a word.

    Numbers at the end, as of dates and parts, do not count: `Orders-2026-01.csv.gz` gives `orders`.
    The name of a Kafka topic of Debezium ends with the table: `shop.public.orders`.
    """
    for place in places:
        stem = place.strip(".").partition(".")[0]
        if place.count(".") > 1 and not format_of(place):
            stem = place.rpartition(".")[2]
        name = re.sub(r"(_[0-9]+)+$", "", _plain(stem))
        if name and not DMS_FILE.fullmatch(stem) and not iskeyword(name):
            return name
    return "rows"


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_").lstrip("0123456789_")[:90]


def _comment(text: str) -> list[str]:
    """The lines of a comment. Line breaks in `text` are escaped."""
    return textwrap.wrap(
        printable(text),
        _WIDTH,
        initial_indent="# ",
        subsequent_indent="# ",
        break_long_words=False,
        break_on_hyphens=False,
    )
