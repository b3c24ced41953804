"""Knobs: the layer's defaults under what a table declares."""

import pytest

from lakehouse.core.errors import Refused
from lakehouse.core.policy import MIB, Compaction, CompactionPolicy, policy_for


@pytest.mark.parametrize(("layer", "min_small_files"), [("bronze", 40), ("silver", 16), ("gold", 8)])
def test_the_defaults_of_a_layer(layer: str, min_small_files: int) -> None:
    assert policy_for(layer, Compaction()) == CompactionPolicy(
        target_file_bytes=128 * MIB, min_small_files=min_small_files, max_deleted_rows_ratio=0.05
    )


@pytest.mark.parametrize(
    ("knob", "value"), [("target_file_bytes", 4096), ("min_small_files", 2), ("max_deleted_rows_ratio", 1), ("max_deleted_rows_ratio", 0.5)]
)
def test_a_declared_knob_beats_the_default_and_leaves_the_others(knob: str, value: float) -> None:
    declared, default = (policy_for("gold", Compaction(**given)) for given in ({knob: value}, {}))
    changed = [name for name in CompactionPolicy.__slots__ if getattr(declared, name) != getattr(default, name)]
    assert changed == [knob] and getattr(declared, knob) == value


@pytest.mark.parametrize(
    ("knob", "value"),
    [
        ("target_file_bytes", 4095),
        ("target_file_bytes", 128e6),
        ("target_file_bytes", "128m"),
        ("min_small_files", 1),
        ("min_small_files", True),
        ("max_deleted_rows_ratio", 0),
        ("max_deleted_rows_ratio", 1.01),
        ("max_deleted_rows_ratio", float("nan")),
        ("max_deleted_rows_ratio", "5%"),
    ],
)
def test_a_knob_that_cannot_be_meant_is_refused_by_name(knob: str, value: object) -> None:
    with pytest.raises(Refused, match=rf"^Compaction\.{knob} is .*; accepted: "):
        Compaction(**{knob: value})  # type: ignore[arg-type]


def test_a_layer_that_is_none_is_refused() -> None:
    with pytest.raises(Refused, match="layer is 'raw'; accepted: bronze, silver, gold"):
        policy_for("raw", Compaction())


@pytest.mark.parametrize(("target", "candidate"), [(4096, 3072), (4097, 3072), (128 * MIB, 96 * MIB)])
def test_candidates_are_below_three_quarters_of_the_target(target: int, candidate: int) -> None:
    assert policy_for("gold", Compaction(target_file_bytes=target)).candidate_bytes == candidate
