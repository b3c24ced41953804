"""The benchmarks at sizes of seconds, how their figures are judged, and the page that is written from what they record."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import __main__ as runner
from benchmarks import fresh
from benchmarks.catalog import NAMES
from benchmarks.figures import Figure, growth, middle, number_text, ratio, tell
from benchmarks.page import page, write_page
from benchmarks.records import FOLDER, ROOT, Record, recorded, save
from benchmarks.rows import ROWS

FIGURES = (
    middle("a compaction", [1.0, 3.0, 2.0], unit="s", row="P5", peers={"bare OPTIMIZE": 2.5}),
    ratio(
        "throughput over that of a bare OPTIMIZE",
        [2.0, 3.0, 4.0],
        [1.0, 1.0, 8.0],
        row="P5",
        at_least=1.0,
    ),
    growth("scan", [(10, 1.0), (100, 100.0), (1_000, 10_000.0)], size_of="files"),
    Figure(name="rows lost", value=1, at_most=0, holds_at_any_size=True),
)
RECORD = Record(
    benchmark="throughput",
    command="make bench ONLY=throughput",
    figures=FIGURES,
    seconds=61.5,
    busy=0.5,
)


def test_whatever_a_record_misses_stands_under_a_promise_with_its_reason() -> None:
    reasons = {row.name: row.shortfall for row in ROWS}
    missed = [
        (name, figure)
        for name, record in recorded().items()
        for figure in record.figures
        if figure.met is False
    ]
    assert [(name, figure.name) for name, figure in missed if not reasons.get(figure.row)] == []


def test_every_benchmark_measures_for_a_row_that_is_there_and_every_row_has_a_benchmark() -> None:
    named = {name for row in ROWS for name in row.benchmark.split(",")}
    assert named - set(NAMES) == {"study"}
    assert {figure.row for record in recorded().values() for figure in record.figures} <= {
        "",
        *(row.name for row in ROWS),
    }


def test_a_function_in_a_process_of_its_own_gives_its_value() -> None:
    assert fresh.fresh(number_text, 1234.5, "MB") == "1,234 MB"


def test_a_ratio_is_the_median_of_pairs_and_a_growth_the_slope_of_logarithms() -> None:
    compaction, throughput, scan, _ = FIGURES
    assert (compaction.value, throughput.value, throughput.samples) == (2.0, 2.0, (2.0, 3.0, 0.5))
    assert scan.value == pytest.approx(2.0) and scan.met is False
    assert growth("scan", [(10, 1.0), (100, 10.0)], size_of="files").met is True


def test_a_missed_goal_is_an_exit_code_and_in_a_smoke_run_only_where_size_does_not_matter(
    capsys: pytest.CaptureFixture[str],
) -> None:
    exits = [
        (tell(figures), tell(figures, smoke=True))
        for figures in (FIGURES[:3], FIGURES[3:], FIGURES[:2])
    ]
    assert exits == [(1, 0), (1, 1), (0, 0)]
    assert (
        "P5  throughput over that of a bare OPTIMIZE: 2 times (0.500 times to 3 times, 3 runs; goal at least 1 times: met)"
        in capsys.readouterr().out
    )


def test_the_page_is_written_from_records_alone(tmp_path: Path) -> None:
    internals = tmp_path / "docs" / "internals"
    save(RECORD, folder := internals / "benchmarks")
    save(recorded(folder)["throughput"], folder)  # reading and writing a record changes nothing
    write_page(tmp_path)
    written = (internals / "benchmarks.md").read_text()
    by_promise = dict(re.findall(r"^\| (P\d+) \| (.*) \|$", written, flags=re.MULTILINE))
    assert by_promise["P5"].endswith("| 2 times | met")
    assert by_promise["P7"].endswith("|  | not run")
    assert by_promise["P13"].endswith("| **1 of 1 missed**")
    assert "- scan: 2, goal at most 1.10" in written
    assert f"Recorded from {RECORD.began} to {RECORD.began}" in written
    assert "during throughput (50%)." in written and "Not run: big_log, inventory," in written
    assert (folder / "throughput.png").read_bytes().startswith(b"\x89PNG")
    assert "(benchmarks/throughput.png)" in written


def test_what_a_promise_shows_is_a_figure_of_its_own() -> None:
    figures = [figure for record in recorded().values() for figure in record.figures]
    names = {(figure.row, figure.name) for figure in figures}
    assert {(row.name, name) for row in ROWS for name in row.shown.values()} <= names


def test_the_page_in_the_docs_is_what_the_records_say() -> None:
    """`python -m benchmarks page` rewrites it."""
    assert (ROOT / "docs" / "internals" / "benchmarks.md").read_text() == page(recorded(FOLDER))


def test_an_unknown_name_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert runner.main(["throughput,thruput"]) == 2
    assert f"benchmark 'thruput' is not known. Use {', '.join(NAMES)}" in capsys.readouterr().err


@pytest.mark.long
def test_ctrl_c_stops_the_benchmark_and_its_servers_and_names_the_rest() -> None:
    command = [sys.executable, "-m", "benchmarks", "--smoke", "vacuum_lake,vacuum"]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert next(line for line in process.stdout if "1 of 2" in line)
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()  # to its end: no child holds it open any longer
    assert process.returncode == 130
    assert "Use make bench ONLY=vacuum_lake,vacuum for the rest" in rest
