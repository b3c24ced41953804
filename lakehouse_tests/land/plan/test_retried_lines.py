"""Quarantined lines of CSV are written so that they are read as they were."""

from dataclasses import replace

import pytest

from lakehouse.declare.landing import Csv, Landing
from lakehouse.land.plan.file_text import RetriedLine, read_records, retried_path, retried_text

CODES = Landing(
    prefix="landing/codes/", format="csv", schema="code STRING, name STRING", csv=Csv(delimiter=";")
)
ONE = replace(CODES, schema="code STRING")


def read(landing: Landing, *lines: tuple[str, str | None]) -> list[tuple[str, str | None]]:
    data = retried_text([RetriedLine(*line) for line in lines], landing).encode()
    records = read_records(data, landing, compression=None, max_content_bytes=10_000)
    return [(record.content.decode(), record.undeclared) for record in records]


@pytest.mark.parametrize(
    ("landing", "lines"),
    [
        (CODES, [('A;"B ""x""\n"', None), ("B;", None)]),
        (
            CODES,
            [("A;b", '{"m;o": "say \\"x\\"", "n": "1"}'), ("B;c", '{"p": " "}'), ("C;d", None)],
        ),
        (replace(CODES, csv=Csv(header=False)), [("A,b", None)]),
        (replace(ONE, null_value="NA"), [("A", None), ("NA", None)]),
    ],
)
def test_lines_are_read_as_they_were(landing: Landing, lines: list[tuple[str, str | None]]) -> None:
    assert read(landing, *lines) == lines


def test_a_record_of_one_blank_field_is_no_blank_line() -> None:
    assert read(ONE, ("", None), ("  ", None)) == [('""', None), ('"  "', None)]
    assert read(replace(ONE, null_value="NA"), ("", None)) == [("NA", None)]


def test_the_same_lines_give_the_same_path() -> None:
    ids = [("a", 1, "x"), ("b", 1, "y")]
    paths = {retried_path("bronze/codes", CODES, each) for each in (ids, ids[::-1], ids[:1])}
    assert len(paths) == 2
    assert all(path.startswith("landing/codes/_retry/bronze/codes/") for path in paths)
    assert all(CODES.takes(path) for path in paths)
