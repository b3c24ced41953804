"""`lakehouse health` and `lakehouse tables`."""

import pytest

from lakehouse_tests.support.terminal import Terminal, type_of_story


def test_health_has_the_numbers_of_each_table_under_stable_names(told: Terminal) -> None:
    orders, latest, _ = told.json("health")
    assert orders.keys() == latest.keys()
    names = ("version", "file_count", "small_file_count", "mergeable_file_count")
    assert [orders[name] for name in names] == [2, 5, 4, 3]
    expected = (4803, 960, 480)
    assert (orders["size_bytes"], orders["average_file_bytes"], orders["row_count"]) == expected
    names = ("tombstone_count", "tombstone_bytes", "log_commit_count")
    assert [latest[name] for name in names] == [2, 300, 4]
    assert orders["parts"].keys() == {"small files", "average size", "log debt", "tombstones"}


def test_a_missing_table_has_no_score_and_the_worst_table_comes_first(told: Terminal) -> None:
    [totals] = told.json("health", "gold/totals")
    assert totals == {
        "table": "gold/totals",
        "score": None,
        "sentence": "the table is declared, but does not exist yet",
    }
    lines = told.run("health").stdout.splitlines()
    scores = [line.split()[0] for line in lines[2:]]
    assert scores[-1] == "-" and [float(score) for score in scores[:-1]] == sorted(
        float(score) for score in scores[:-1]
    )
    assert "3 files (303 B) merge into 1" in "\n".join(lines)


def test_lines_in_quarantine_are_reported_by_landing(told: Terminal, story: type_of_story) -> None:
    told_of = "bronze/orders: 3 lines in quarantine: lakehouse quarantine show bronze/orders"
    assert "in quarantine" not in told.run("landing", "bronze/orders").stdout
    story("quarantine/bronze/orders").create().append([("q", 10, 3)])
    assert told_of in told.run("landing", "bronze/orders").stdout
    assert told.json("landing", "bronze/orders")["quarantine_rows"] == 3


def test_tables_lists_what_is_declared_and_what_there_is_of_it(told: Terminal) -> None:
    orders, latest, totals = told.json("tables")
    assert (orders["table"], orders["file_count"], orders["row_count"]) == ("bronze/orders", 5, 480)
    assert (latest["inputs"], latest["merge_keys"]) == (["bronze/orders"], ["id"])
    assert (totals["write"], totals["version"]) == ("overwrite", None)
    shown = told.run("tables").stdout
    assert "append by d" in shown and "merge on id" in shown and "not written yet" in shown


NO_TABLES = "lakehouse_tests.log_builder"


def test_a_lake_without_tables_gives_empty_lists(terminal: Terminal) -> None:
    for command in ("tables", "health", "plan"):
        assert terminal.json(command, LAKEHOUSE_TABLES=NO_TABLES) == []


def test_tables_that_are_no_longer_declared_are_named_and_whatever_is_no_table_is_not(
    told: Terminal, story: type_of_story
) -> None:
    story("gold/sums").create().append([("a", 100, 1)])
    story("quarantine/gold/sums").create().append([("q", 10, 3)])
    story("exports/orders").create()
    (told.root / "bronze/staging/_tmp").mkdir(parents=True)
    advice = (
        "undeclared tables in the lake, which nothing maintains: gold/sums. Declare them again, or "
        "set location= on the tables that replace them"
    )
    result = told.run("tables")
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, advice)
    *declared, listed = told.json("tables")
    assert [each["declared"] for each in declared] == [True] * 3
    assert listed.keys() == declared[0].keys()
    assert (listed["table"], listed["declared"]) == ("gold/sums", False)
    assert advice in listed.values()
    expected = [None, 1, 1, 100]
    assert [listed[name] for name in ("write", "version", "file_count", "size_bytes")] == expected
    several = told.run("tables", LAKEHOUSE_TABLES=NO_TABLES).stdout.splitlines()[-1]
    assert "nothing maintains: bronze/orders, gold/sums, silver/orders. Declare" in several


STORE_DOWN = {
    "LAKEHOUSE_ROOT": "s3://bucket/lake",
    "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
    "AWS_ACCESS_KEY_ID": "a",
    "AWS_SECRET_ACCESS_KEY": "b",
    "AWS_MAX_ATTEMPTS": "1",
}


@pytest.mark.parametrize(
    "arguments", [("tables",), ("health",), ("plan",), ("vacuum", "--dry-run")]
)
def test_a_store_that_fails_is_named_once(told: Terminal, arguments: tuple[str, ...]) -> None:
    result = told.run(*arguments, **STORE_DOWN)
    assert (result.exit_code, result.stdout) == (75, "")
    assert result.stderr == (
        "Transient: store: cannot list s3://bucket/lake/_lakehouse/maintained/: Could not connect to the endpoint URL: "
        '"http://127.0.0.1:1"; try again\n'
    )


def test_what_is_wrong_with_one_table_alone_is_told_of_it_alone(told: Terminal) -> None:
    for key in ("bronze/orders", "silver/orders"):
        (told.root / key / "_delta_log/00000000000000000001.json").unlink()
    lines = told.run("health").stderr.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["Broken", "Broken"]
