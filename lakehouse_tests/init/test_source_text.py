"""Source that is executed gives back what it was made of."""

import subprocess
import sys

import lakehouse
from lakehouse import Append, Csv, Dms, Landing, Merge, Table
from lakehouse.init.plan import python_source, python_text

HOSTILE = ('a"b', "it's", "\"'", "x\\", 'a"""\nimport os', "\u2028", "größe", "tab\t", "{0}", "")


def test_every_text_comes_back_as_it_was() -> None:
    assert [eval(python_text(text)) for text in HOSTILE] == [*HOSTILE]
    assert all("\n" not in python_text(text) for text in HOSTILE)


def test_a_declaration_comes_back_as_it_was_and_is_formatted() -> None:
    names = [f'`a long name {number} "`' for number in range(9)]
    orders = Table(
        key="bronze/orders",
        source=Landing(
            prefix="landing/orders/",
            format="csv",
            schema=", ".join(["Op STRING", *(f"{name} STRUCT<a: INT, b: INT>" for name in names)]),
            csv=Csv(delimiter="\t", header=False),
            null_value="",
            changes=Dms(position=(names[0].strip("`"),)),
        ),
        write=Merge(keys=(names[1].strip("`"),)),
        renamed={text: f'a long name {number} "' for number, text in enumerate(HOSTILE[:2])},
    )
    lines = python_source("orders = ", orders)
    scope = {name: getattr(lakehouse, name) for name in lakehouse.__all__}
    exec("\n".join(lines), scope)
    assert scope["orders"] == orders
    assert is_formatted("\n".join(lines) + "\n")
    assert python_source("write=", Append(), end=",") == ["write=Append(),"]


def is_formatted(text: str) -> bool:
    """Whether ruff would leave the text of a module as it is."""
    options = ("--isolated", "--line-length=100", "--check")
    check = [sys.executable, "-m", "ruff", "format", *options, "-"]
    return subprocess.run(check, input=text, text=True, capture_output=True).returncode == 0
