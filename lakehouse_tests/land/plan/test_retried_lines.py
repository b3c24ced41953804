"""Quarantined lines of CSV are written so that they are read as they were."""

from dataclasses import replace

from lakehouse.declare.landing import Csv, Landing
from lakehouse.land.plan.file_text import retried_path, retried_text

CODES = Landing(
    prefix="landing/codes/", format="csv", schema="code STRING, name STRING", csv=Csv(delimiter=";")
)
ONE = replace(CODES, schema="code STRING")


def text_of(landing: Landing, *lines: tuple[str, str | None]) -> str:
    return retried_text(lines, landing)


def test_lines_are_written_as_they_were_with_their_undeclared_fields() -> None:
    assert text_of(CODES, ('A;"B ""x""\n"', None), ("B;", None)) == (
        '"code";"name"\nA;"B ""x""\n"\nB;\n'
    )
    others = [("A;b", '{"m;o": "say \\"x\\"", "n": "1"}'), ("B;c", '{"p": " "}'), ("C;d", None)]
    assert text_of(CODES, *others) == (
        '"code";"name";"m;o";"n";"p"\nA;b;"say ""x""";"1";\nB;c;;;" "\nC;d;;;\n'
    )
    assert text_of(replace(CODES, csv=Csv(header=False)), ("A,b", None)) == "A,b\n"


def test_a_record_of_one_blank_field_is_no_blank_line() -> None:
    assert text_of(ONE, ("", None), ("  ", None)) == '"code"\n""\n"  "\n'
    assert text_of(replace(ONE, null_value="NA"), ("", None)) == '"code"\nNA\n'


def test_the_same_lines_give_the_same_path() -> None:
    ids = [("a", 1, "x"), ("b", 1, "y")]
    paths = {retried_path("bronze/codes", CODES, each) for each in (ids, ids[::-1], ids[:1])}
    assert len(paths) == 2
    assert all(path.startswith("landing/codes/_retry/bronze/codes/") for path in paths)
    assert all(CODES.takes(path) for path in paths)
