"""The rows of `costs/operations`: the figures of an operation under the names of Databricks' metrics."""

from lakehouse.core.costs.compaction_history import account_for
from lakehouse.core.costs.operations import compactions_of
from lakehouse.core.costs.operations_columns import OPERATION_COLUMNS, operation_row
from lakehouse.core.declaration.prices import DEFAULT_PRICES
from lakehouse_tests.core.costs.test_operations import history


def test_a_compaction_has_each_metric_of_databricks_for_compactions() -> None:
    ours, others = (
        operation_row(each, lake="s3://lake", vcpus=2.0)
        for each in compactions_of(
            "bronze/t", account_for(history()).entries, DEFAULT_PRICES, since_ms=0
        )
    )
    assert [*ours] == [*OPERATION_COLUMNS]
    assert ours["operation_metrics"] == {
        "number_of_compacted_files": "2",
        "amount_of_data_compacted_bytes": "300",
        "number_of_output_files": "1",
        "amount_of_output_data_bytes": "280",
    }
    assert others["operation_metrics"] == {}
