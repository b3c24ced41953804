"""Dagster's own records, read from the files that a real instance writes."""

from pathlib import Path

import dagster as dg

from lakehouse.assets.home import newest_checks


def test_the_newest_result_of_each_check_is_read_without_dagster(tmp_path: Path) -> None:
    assert newest_checks(tmp_path / "nowhere") is None
    key = dg.AssetKey(["bronze", "orders"])
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        for name, *results in (("readable", False, True), ("quarantine", True, False)):
            for passed in results:
                instance.report_runless_asset_event(
                    dg.AssetCheckEvaluation(asset_key=key, check_name=name, passed=passed)
                )
        expected = {("bronze/orders", "readable"): True, ("bronze/orders", "quarantine"): False}
        assert newest_checks(tmp_path) == expected
