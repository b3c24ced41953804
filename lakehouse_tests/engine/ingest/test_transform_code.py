"""A changed transform has another hash, and what changes nothing in its rows leaves the hash as it is."""

import importlib
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
import yaml

from lakehouse import Table
from lakehouse.engine.ingest.transform_code import transform_code
from lakehouse_tests.engine.example import counts, events, states

HEAD = """
import functools
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum

import yaml

from lakehouse import Append, Landing, Overwrite, Table, table

orders = Table(
    key="bronze/orders",
    source=Landing(prefix="landing/orders/", format="json", schema="id BIGINT"),
    write=Append(),
)
"""
TOTALS = """
@table(key="gold/totals", inputs=[orders], write=Overwrite())
def totals(orders):
    return {body}
"""

type_of_hash = Callable[..., str | None]


_versions = count()


@pytest.fixture
def hash_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type_of_hash:
    """Imports `shop/tables.py` with this text, and `shop/rules.py`; the hash of its `totals`."""
    names = ("shop", "shop.rules", "shop.tables")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def hashed(text: str, rules: str = "") -> str | None:
        home = tmp_path / f"{next(_versions)}"
        (home / "shop").mkdir(parents=True)
        (home / "shop" / "__init__.py").touch()
        (home / "shop" / "rules.py").write_text(rules)
        (home / "shop" / "tables.py").write_text(HEAD + text)
        try:
            with monkeypatch.context() as patched:
                patched.syspath_prepend(str(home))
                return transform_code(importlib.import_module("shop.tables").totals)
        finally:
            for name in names:
                sys.modules.pop(name, None)

    return hashed


def totals(body: str) -> str:
    return TOTALS.format(body=body)


def made(transform: str) -> str:
    return f"totals = table(key='gold/t', inputs=[orders], write=Overwrite())({transform})"


BEFORE = """
RATE = 0.5

@table(key="gold/totals", inputs=[orders], write=Overwrite())
def totals(orders):
    rate = RATE
    return orders.where(orders.id > 1).select(rate)
"""
WITHOUT_EFFECT = {
    "comments, formatting, a docstring": """
RATE = .5  # half


@table(key="gold/totals", inputs=[orders], write=Overwrite())
def totals(orders):
    '''One row.'''

    # Half of them.
    rate = RATE
    return (
        orders
        .where((orders.id) > 1)
        .select(rate,)
    )
""",
    "annotations": """
RATE: float = 0.5

@table(key="gold/totals", inputs=[orders], write=Overwrite())
def totals(orders: "Table") -> "Table":
    rate: float = RATE
    return orders.where(orders.id > 1).select(rate)
""",
    "another name, other knobs, and what it does not use": """
OTHER = 1
RATE = 0.5

def unused(rate):
    return rate

@table(key="gold/others", inputs=[orders], write=Overwrite(), description="Totals.")
def others(orders):
    rate = RATE
    return orders.where(orders.id > 1).select(rate)

totals = others
""",
}


def test_what_changes_no_row_leaves_the_hash_as_it_is(hash_of: type_of_hash) -> None:
    before = hash_of(BEFORE)
    assert before is not None and before.startswith("ast1:") and len(before) == 21
    assert {name: hash_of(text) for name, text in WITHOUT_EFFECT.items()} == dict.fromkeys(
        WITHOUT_EFFECT, before
    )


def test_the_declaration_of_a_wrapped_transform_does_not_count(hash_of: type_of_hash) -> None:
    rules = "def asked(function):\n    return lambda orders: function(orders)"
    text = "from shop.rules import asked\n" + totals("orders").replace("def", "@asked\ndef")
    described = text.replace("inputs=", "description='Totals.', inputs=")
    assert hash_of(text, rules) == hash_of(described, rules) is not None


# `shop/tables.py`, and `shop/rules.py` if it is needed. "THIS" is 1 at first, and 2 after the change.
CHANGES: dict[str, tuple[str, str]] = {
    "a filter": (totals("orders.where(orders.id > THIS)"), ""),
    "a function": ("def some(rows):\n    return rows.limit(THIS)\n" + totals("some(orders)"), ""),
    "a constant": ("NAMES = {'a': [1, (THIS,)]}\n" + totals("orders.select(*NAMES)"), ""),
    "a literal of a class": ("RATE = Decimal(THIS)\n" + totals("orders.select(RATE)"), ""),
    "a constant of a function inside it": (
        "RATE = THIS\n" + totals("(lambda rows: [rows.limit(RATE) for _ in rows])(orders)"),
        "",
    ),
    "a constant of a function of another module": (
        "from shop.rules import valid\n" + totals("valid(orders)"),
        "MOST = THIS\ndef valid(rows):\n    return rows.limit(MOST)",
    ),
    "a function by its module": (
        "import shop.rules\n" + totals("shop.rules.valid(orders)"),
        "def valid(rows):\n    return rows.limit(THIS)",
    ),
    "a function that it imports itself": (
        "def some(rows):\n    from shop.rules import valid as v\n    return v(rows)\n"
        + totals("some(orders)"),
        "def valid(rows):\n    return rows.limit(THIS)",
    ),
    "a function of a module that it imports itself": (
        "def some(rows):\n    from . import rules\n    import shop.rules\n"
        "    return shop.rules.valid(rules, rows)\n" + totals("some(orders)"),
        "def valid(rules, rows):\n    return rows.limit(THIS)",
    ),
    "a wrapper": (
        "from shop.rules import limited\n" + totals("orders").replace("def", "@limited\ndef"),
        "def limited(function):\n    return lambda orders: function(orders).limit(THIS)",
    ),
    "what a wrapper wraps": (
        "from shop.rules import asked\n" + totals("orders[THIS]").replace("def", "@asked\ndef"),
        "def asked(function):\n    return lambda orders: function(orders)",
    ),
    "what a cache of another package wraps": (
        "@functools.lru_cache\ndef most():\n    return THIS\n" + totals("orders.limit(most())"),
        "",
    ),
    "a closure": (
        "def limited(most):\n    return lambda orders: orders.limit(most)\n"
        + made("limited(THIS)"),
        "",
    ),
    "an argument of a partial": (
        "def limited(orders, most):\n    return orders.limit(most)\n"
        + made("functools.partial(limited, most=THIS)"),
        "",
    ),
    "the function of a partial": (
        "def limited(orders, most):\n    return orders.limit(most + THIS)\n"
        + made("functools.partial(limited, most=1)"),
        "",
    ),
    "a default value": (
        "made = [lambda orders, n=n: orders.limit(n) for n in (THIS,)]\n" + made("made[0]"),
        "",
    ),
    "the second lambda of a line": (
        "both = (lambda orders: orders, lambda orders: orders.limit(THIS))\n" + made("both[1]"),
        "",
    ),
    "a constant of a method": (
        "MOST = THIS\nclass Limit:\n    def of(self, rows):\n        return rows.limit(MOST)\n"
        + totals("Limit().of(orders)"),
        "",
    ),
    "an object of the package": (
        "@dataclass\nclass Limit:\n    most: int\nLIMIT = Limit(THIS)\n"
        + totals("orders.limit(LIMIT.most)"),
        "",
    ),
    "a member of an enum": (
        "class Word(Enum):\n    A = 1\n    B = 2\nWORD = Word(THIS)\n" + totals("orders[WORD]"),
        "",
    ),
    "the name of a local variable": (totals("[row_THIS for row_THIS in orders]"), ""),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_what_it_runs_is_another_hash(hash_of: type_of_hash, change: str) -> None:
    first, again, changed = (
        hash_of(*(text.replace("THIS", this) for text in CHANGES[change])) for this in "112"
    )
    assert first == again != changed
    assert None not in (first, changed)


def test_functions_that_call_each_other_and_a_constant_that_holds_itself_have_an_end(
    hash_of: type_of_hash,
) -> None:
    text = """
def one(rows):
    return other(rows) if rows else LOOP

def other(rows):
    return one(rows)

LOOP = [1]
LOOP.append(LOOP)
"""
    assert hash_of(text + totals("one(orders)")) == hash_of(text + totals("one(orders)"))


def test_a_long_chain_of_calls_is_not_too_deep(hash_of: type_of_hash) -> None:
    first, second = (hash_of(totals("orders" + f".limit({most})" * 300)) for most in (1, 2))
    assert None not in (first, second) and first != second


def test_an_object_that_cannot_be_looked_at_makes_the_code_unknown(hash_of: type_of_hash) -> None:
    text = (
        "class Odd:\n    @property\n    def __dict__(self):\n        raise OSError\nODD = Odd()\n"
    )
    assert hash_of(text + totals("orders[ODD]")) is None


def test_an_upgrade_of_a_library_and_the_address_of_an_object_are_no_change(
    hash_of: type_of_hash, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "from yaml import safe_load\nODD = yaml.Loader('')\n" + totals(
        "safe_load(yaml.safe_dump(orders), ODD)"
    )
    before = hash_of(text)
    monkeypatch.setattr(yaml, "safe_dump", lambda stream: stream)
    monkeypatch.setattr(yaml.safe_load, "__module__", "yaml.moved")
    assert hash_of(text) == before is not None


def test_code_whose_source_is_not_available_has_no_hash(hash_of: type_of_hash) -> None:
    assert hash_of(f"exec({totals('orders.limit(1)')!r})") is None
    without_source = "exec('def some(orders): return orders')\n"
    assert hash_of(without_source + totals("some(orders)")) is None


def test_landed_tables_have_no_code() -> None:
    assert transform_code(events) is None


def test_two_processes_hash_alike() -> None:
    code = (
        "from lakehouse.engine.ingest.transform_code import transform_code\n"
        "from lakehouse.tables import gold, silver\n"
        "from lakehouse_tests.engine.example import counts, states\n"
        "print(*map(transform_code, (counts, states, gold.carrier_daily, silver.weather)))"
    )
    seeds = ("1", "2")
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(filter(None, sys.path))},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in seeds
    ]
    first, second = (run.communicate()[0].split() for run in runs)
    assert first == second and len({*first}) == 4
    assert first[:2] == [transform_code(table) for table in (counts, states)]


def test_the_form_of_a_hash_is_what_tables_have_recorded() -> None:
    """If it has to change, so has the kind before its colon, or all code is called changed."""
    assert transform_code(_pinned) == "ast1:a7cc6235ceabfc08"


_pinned = Table(
    key="gold/pinned",
    inputs=counts.inputs,
    write=counts.write,
    transform=lambda states: states.where("state <> 'x'").limit(_MOST),
)
_MOST = 7
