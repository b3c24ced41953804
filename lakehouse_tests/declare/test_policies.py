"""Knobs: the layer's defaults under what a table declares."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from lakehouse.base.errors import Refused
from lakehouse.declare.policies import (
    MIB,
    BinPacking,
    BySensor,
    Compaction,
    LiquidClustering,
    ZOrder,
    policy_for,
)


@pytest.mark.parametrize(
    ("layer", "min_small_files"), [("bronze", 40), ("silver", 24), ("gold", 8)]
)
def test_the_defaults_of_a_layer(layer: str, min_small_files: int) -> None:
    policy = policy_for(layer, Compaction())
    assert (policy.min_small_files, policy.target_file_bytes) == (min_small_files, 0)
    assert (policy.strategy, policy.mode) == (BySensor(), "automatic")
    assert policy.data_layout == BinPacking()


@pytest.mark.parametrize(("knob", "value"), [("target_file_bytes", 4096), ("min_small_files", 2)])
def test_a_declared_knob_beats_the_default_and_leaves_the_others(knob: str, value: float) -> None:
    expected = replace(policy_for("gold", Compaction()), **{knob: value})
    assert policy_for("gold", Compaction(**{knob: value})) == expected


@pytest.mark.parametrize(
    ("knob", "value"),
    [
        ("strategy", "auto"),
        ("mode", "sometimes"),
        ("data_layout", "zorder"),
        ("max_small_file_age_hours", float("inf")),
        ("purge_deleted_rows_share", -0.1),
        ("cooldown_minutes", True),
        ("scan_cores", 0),
        ("max_bytes_per_run", 1.5),
        ("cold_hours", float("nan")),
        *(("target_file_bytes", value) for value in (4095, 128e6, "128m")),
        *(("min_small_files", value) for value in (1, True)),
        *(("purge_deleted_rows_share", value) for value in (1.01, float("nan"), "5%")),
    ],
)
def test_a_knob_that_cannot_be_meant_is_refused_by_name(knob: str, value: object) -> None:
    with pytest.raises(Refused, match=rf"^Compaction\.{knob} is .*\. Use "):
        Compaction(**{knob: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("target", "candidate"), [(4096, 3072), (4097, 3072), (128 * MIB, 96 * MIB)]
)
def test_candidates_are_below_three_quarters_of_the_target(target: int, candidate: int) -> None:
    assert policy_for("gold", Compaction(target_file_bytes=target)).candidate_bytes == candidate


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: ZOrder(columns=()), r"ZOrder.columns is \(\)"),
        (lambda: LiquidClustering(columns="a"), "LiquidClustering.columns is 'a'"),  # type: ignore[arg-type]
    ],
)
def test_a_meaningless_value_is_refused_by_name(make: Callable[[], object], named: str) -> None:
    with pytest.raises(Refused, match=rf"^{named}\. Use "):
        make()
