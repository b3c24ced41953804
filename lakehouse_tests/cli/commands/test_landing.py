"""`lakehouse landing`: what comes next for a landed table, or what the next load stops with."""

from lakehouse_tests.cli.conftest import Terminal


def test_a_table_that_the_next_load_refuses_is_announced_no_batch(told: Terminal) -> None:
    assert told.json("landing", "bronze/orders")["next"].startswith(
        "load of bronze/orders: the table has rows, but its log has no"
    )
    first, second = told.run("landing", "bronze/orders").stdout.splitlines()
    assert first.startswith(
        "bronze/orders: 0 batches of 0 files below landing/"
    ) and second.startswith("load of bronze/orders: ")
