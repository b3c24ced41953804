"""`lakehouse pin`: sets, lists and removes pins, and says what else a reader needs."""

import pytest

from lakehouse.core.text import utc_text
from lakehouse.engine.store import DiskStore
from lakehouse_tests.cli.conftest import Terminal

DAY_MS = 86_400_000
PIN = ("pin", "silver/orders", "--version", "1", "--reader", "powerbi")


@pytest.fixture(autouse=True)
def data(told: Terminal) -> None:
    """The data files of the example table, also the one that its compaction removed."""
    for name in ("a", "b", "c"):
        DiskStore(told.root).put(f"silver/orders/{name}", b"x")


def test_a_pin_is_set_listed_and_removed(told: Terminal) -> None:
    assert told.run("pin").stdout == "no version is pinned\n"
    [pin] = told.json(*PIN, "--until", "20d")
    assert (pin["until_ms"] - pin["since_ms"] - 20 * DAY_MS) // 60_000 in (0, -1)
    about = {"table": "silver/orders", "version": 1, "reader": "powerbi", "holds": True}
    assert about.items() <= pin.items() and pin["why_not"] == ""
    assert pin["notes"][0] == (
        f"silver/orders: version 1 (1 file) is pinned by powerbi until {utc_text(pin['until_ms'])}"
    )
    assert "enforceTimeTravelWithinDeletedFileRetentionDuration=false" in pin["notes"][1]
    assert len(pin["notes"]) == 2  # the log lasts longer than the pin
    for words in (("pin",), ("pin", "silver/orders")):
        row = told.run(*words).stdout.splitlines()[-1].split()
        assert (row[:3], row[-1]) == (["silver/orders", "1", "powerbi"], "holds")
    assert told.json("pin", "bronze/orders") == []
    gone = "silver/orders: version 1 is no longer pinned by powerbi\n"
    assert told.run(*PIN, "--remove").stdout == gone
    assert told.run(*PIN, "--remove").stdout == gone.replace("is no longer", "was not")
    assert told.json("pin") == []


def test_a_pin_that_outlives_its_log_says_so_with_the_way_out(told: Terminal) -> None:
    [pin] = told.json(*PIN, "--until", "40d")
    assert pin["notes"][2].startswith("Delta may delete the log files that describe version 1 ")
    assert pin["notes"][2].endswith("To keep the version longer, raise delta.logRetentionDuration")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("pin", "silver/orders", "--version", "1"), "Use lakehouse pin TABLE --version N"),
        (PIN, "a value is missing"),
        (("pin", "--version", "1", "--reader", "x", "--until", "1d"), "a value is missing"),
        (("pin", "silver/orders", "--until", "1d"), "--version is missing"),
        (
            (*PIN[:-1], "excel", "--until", "1d"),
            "'excel' is not a declared reader of the table (declared: powerbi)",
        ),
        ((*PIN, "--until", "yesterday"), "--until is 'yesterday'"),
    ],
)
def test_a_pin_that_says_too_little_is_refused(
    told: Terminal, words: tuple[str, ...], why: str
) -> None:
    assert why in told.refused(*words)


def test_a_pin_whose_table_was_created_again_is_listed_as_such(told: Terminal) -> None:
    told.json(*PIN, "--until", "1d")
    store = DiskStore(told.root)
    [record] = store.list("_lakehouse/pins")
    store.put(record.name, store.read(record.name).replace(b"00000000-0000", b"10000000-0000"))
    [pin] = told.json("pin")
    assert (pin["holds"], pin["why_not"]) == (False, "the table was created again after the pin")
