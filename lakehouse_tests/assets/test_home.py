"""Dagster's own records, read from the files that a real instance writes."""

from pathlib import Path

import dagster as dg

from lakehouse.assets.home import read_dagster_records


def test_sizes_runs_and_the_newest_result_of_each_check_are_read_without_dagster(
    tmp_path: Path,
) -> None:
    assert read_dagster_records(tmp_path / "nowhere") is None
    key = dg.AssetKey(["bronze", "orders"])
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        for name, *results in (("readable", False, True), ("quarantine", True, False)):
            for passed in results:
                instance.report_runless_asset_event(
                    dg.AssetCheckEvaluation(asset_key=key, check_name=name, passed=passed)
                )
        instance.add_run(dg.DagsterRun(job_name="anything"))
        size_bytes = sum(each.stat().st_size for each in tmp_path.rglob("*") if each.is_file())
        found = read_dagster_records(tmp_path)
    assert found is not None
    assert found.checks == {
        ("bronze/orders", "readable"): True,
        ("bronze/orders", "quarantine"): False,
    }
    assert found.run_count == 1
    assert found.size_bytes == size_bytes
