"""What comes from outside is shown and acts on no terminal: names of files, operations in a log, notes, arguments, errors."""

import unicodedata

import pytest

from lakehouse.cli.output import print_grid, show, tell
from lakehouse_tests.support.terminal import Terminal, type_of_story

# Clears a screen, sets its title, colours it in one byte (C1), goes back a line, reorders, and is no text.
ACTS = "\x1b[2J\x1b]0;title\x07\x9b31m\r\u202e\x7f"


def acting(text: str) -> set[str]:
    """The names of the characters of a terminal's text that act on it; line breaks are meant."""
    return {
        unicodedata.name(sign, f"{ord(sign):#x}")
        for sign in text
        if not sign.isprintable() and sign != "\n"
    }


@pytest.fixture
def hostile(terminal: Terminal, story: type_of_story) -> Terminal:
    """A lake that somebody else wrote: each name, operation and note holds all that acts."""
    day = f"d={ACTS}"
    orders = story("bronze/orders").create(partition_by=["d"])
    orders.append([(f"{day}/{ACTS}{number}", 100 + number, 10) for number in range(6)])
    story("silver/orders").create().append([("a", 100, 1)]).commit(
        f"UPDATE{ACTS}", user_metadata=ACTS
    )
    story("foreign/a\x1b[2J").create().append([(ACTS, 10, 1)])
    assert terminal.run("pause", "silver/orders", "--why", f"why{ACTS}").exit_code == 0
    terminal.scan()
    return terminal


@pytest.mark.parametrize(
    "arguments",
    [
        ("tables",),
        ("health", "--verbose"),
        ("plan", "--verbose"),
        ("compact", "bronze/orders", "--dry-run"),
        ("history", "silver/orders"),
        ("backtest", "bronze/orders"),
        ("inventory", "report"),
        ("pause", "bronze/orders", "--why", f"because{ACTS}"),
        ("tables", f"--{ACTS}"),
        (ACTS,),
        ("health", f"bronze/{ACTS}"),
        ("plan", "gold/totals", "--until", ACTS),
    ],
)
def test_nothing_that_a_command_shows_acts_on_the_terminal(
    hostile: Terminal, arguments: tuple[str, ...]
) -> None:
    result = hostile.run(*arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.stdout + result.stderr != ""
    assert acting(result.stdout + result.stderr) == set()


def test_hidden_signs_are_shown_and_a_program_gets_them_as_they_are(hostile: Terminal) -> None:
    shown = hostile.run("compact", "bronze/orders", "--dry-run").stdout
    assert r"\x1b[2J\x1b]0;title\x07\x9b31m\r\u202e\x7f5" in shown
    assert r"UPDATE\x1b[2J" in hostile.run("history", "silver/orders").stdout
    assert hostile.json("history", "silver/orders")["commits"][0]["operation"] == f"UPDATE{ACTS}"


def test_a_name_makes_no_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    name = "x\nRefused: all is well\u2028"
    show(name)
    print_grid(("name", ""), [(name, name)])
    out = capsys.readouterr().out
    assert out.count("\n") == 4 and r"x\nRefused: all is well\u2028" in out.splitlines()[0]


def test_an_error_of_several_lines_keeps_them(capsys: pytest.CaptureFixture[str]) -> None:
    tell("Broken: the end of the log:\n\tat java\x1b[31m\nlast")
    assert capsys.readouterr().err == "Broken: the end of the log:\n\tat java\\x1b[31m\nlast\n"
