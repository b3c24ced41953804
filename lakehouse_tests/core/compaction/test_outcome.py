"""A probe reports medians and survives the journal."""

from dataclasses import replace

from lakehouse.core.compaction.outcome import Probe, probe_from

PROBE = Probe(
    table="bronze/t",
    version_before=1,
    version_after=2,
    measured_ms=0,
    before=(1.0, 9.0, 2.0),
    after=(1.0, 0.5, 4.0),
    spent_seconds=2.5,
    budget_seconds=30.0,
)


def test_a_probe_reports_the_medians_and_how_much_faster_a_scan_is() -> None:
    assert PROBE.sentence == (
        "scan 2.000 s before, 1.000 s after: 50.0% faster "
        "(medians of 3 scans each; 2.5 of 30 s spent)"
    )
    assert ": 50.0% slower" in replace(PROBE, after=(3.0, 3.0, 3.0)).sentence


def test_a_table_that_is_too_large_for_a_probe_has_no_figures() -> None:
    nothing = replace(PROBE, before=(), after=())
    assert nothing.gained_share is None
    assert nothing.sentence.startswith("the table is too large to be scanned often enough")


def test_a_probe_survives_the_journal() -> None:
    assert probe_from(PROBE.as_json()) == PROBE
