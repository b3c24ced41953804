"""Text from outside is shown and does nothing else; a misspelt word finds the nearest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse.base.text import nearest_words, printable

ACTING = {
    "a\x1b[2Jb": r"a\x1b[2Jb",
    "a\x9b31mb": r"a\x9b31mb",
    "a\x07\x7f": r"a\x07\x7f",
    "one\r\ntwo\t": r"one\r\ntwo\t",
    "a\u202egnp.exe": r"a\u202egnp.exe",
    "\u2028\udcff": r"\u2028\udcff",
}


@pytest.mark.parametrize(("text", "shown"), ACTING.items())
def test_a_character_that_acts_is_shown_as_its_escape(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text())
def test_what_is_shown_is_printable_and_what_is_printable_is_shown_as_it_is(text: str) -> None:
    assert printable(text).isprintable()
    assert printable(printable(text)) == printable(text)
    assert not text.isprintable() or printable(text) == text


def test_line_breaks_stay_where_lines_are_meant() -> None:
    assert printable("one\n\ttwo\x1b", keep="\n\t") == "one\n\ttwo\\x1b"


@pytest.mark.parametrize(
    ("word", "known", "near"),
    [
        ("PROT", ["PORT", "ROOT"], ["ROOT", "PORT"]),
        ("di", ["id", "day"], ["id"]),
        ("flihgts", ["nights", "flights"], ["flights", "nights"]),
        ("small_files", ["hours", "min_small_files"], ["min_small_files"]),
        ("orders", ["weather"], []),
        ("a", ["b", "bc"], []),
        ("x", [], []),
    ],
)
def test_near_words_are_named_nearest_first(word: str, known: list[str], near: list[str]) -> None:
    assert nearest_words(word, known) == near
