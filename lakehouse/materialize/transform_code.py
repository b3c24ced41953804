"""The code version of a derived table's transform, which is recorded with the rows it computes.

It is `Table(code_version=…)` or, by default, a hash of the function's source: from `def` to its
end, or the statement that contains a lambda. Functions that the transform calls, constants and
decorators do not count. Set `code_version` to say that such a change matters, or that a change of
the text does not.
"""

import inspect
from functools import partial
from hashlib import blake2b
from textwrap import dedent
from typing import Any

from lakehouse.declare.table import Table

# Changes with the way in which hashes are made. Hashes of different kinds are not compared.
_KIND = "source1"


def transform_code(declared: Table) -> str | None:
    """The code version of a table's transform.

    `None` if the table has no transform, or if its source is not available.
    """
    if declared.transform is None:
        return None
    if declared.code_version:
        return f"{_KIND}:version {declared.code_version}"
    function: Any = declared.transform
    while isinstance(function, partial):
        function = function.func
    try:
        source = dedent(inspect.getsource(function))
    except (OSError, TypeError):
        return None
    lines = source.splitlines()
    begins = [line.startswith(("def ", "async def ")) for line in lines]
    first = begins.index(True) if True in begins else 0
    text = "\n".join(line.rstrip() for line in lines[first:])
    return f"{_KIND}:{blake2b(text.encode(), digest_size=8).hexdigest()}"
