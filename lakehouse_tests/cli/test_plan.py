"""`lakehouse plan` and `compact --dry-run`."""

from lakehouse_tests.cli.conftest import Terminal


def test_a_plan_is_a_list_with_every_declared_table_in_order(told: Terminal) -> None:
    plans = told.json("plan")
    estimates = [plan.pop("estimate") for plan in plans]
    assert [estimate and (estimate["seconds"], estimate["usd"], estimate["source"]) for estimate in estimates] == [
        (0.612, 0.000037401, "defaults"),
        (0.0, 0.0, "defaults"),
        None,
    ]
    assert plans == [
        {
            "table": "bronze/orders",
            "version": 2,
            "reason": "MERGEABLE_FILES",
            "sentence": "3 files of 303 bytes merge into 1 in 1 partition(s)",
            "statement": "packing",
            "target_file_bytes": 4096,
            "files_removed": 3,
            "files_added": 1,
            "bytes_removed": 303,
            "files_left": 0,
            "bins": [["d=1/small-0", "d=1/small-1", "d=1/small-2"]],
        },
        {
            "table": "silver/orders",
            "version": 3,
            "reason": "NOTHING_SHARES_A_BIN",
            "sentence": "no two of its 1 small file(s) share a partition and fit into one file of 16777216 bytes",
            "statement": "packing",
            "target_file_bytes": 16777216,
            "files_removed": 0,
            "files_added": 0,
            "bytes_removed": 0,
            "files_left": 0,
            "bins": [],
        },
        {
            "table": "gold/totals",
            "version": None,
            "reason": "NO_TABLE",
            "sentence": "the table is declared and does not exist yet: nothing was written to it",
            "statement": None,
            "target_file_bytes": None,
            "files_removed": 0,
            "files_added": 0,
            "bytes_removed": 0,
            "files_left": 0,
            "bins": [],
        },
    ]


def test_one_table_gives_a_list_too_and_one_named_twice_is_planned_once(told: Terminal) -> None:
    assert [each["table"] for each in told.json("plan", "silver/orders")] == ["silver/orders"]
    assert [each["table"] for each in told.json("plan", "gold/totals", "silver/orders", "gold/totals")] == ["gold/totals", "silver/orders"]


def test_a_dry_run_is_exactly_the_plan(told: Terminal) -> None:
    assert [told.json("compact", "bronze/orders", "--dry-run")] == told.json("plan", "bronze/orders")


def test_a_person_sees_the_largest_gain_first_and_the_files_on_request(told: Terminal) -> None:
    lines = told.run("plan", "--verbose").stdout.splitlines()
    assert [line.split()[0] for line in lines[2:5]] == ["bronze/orders", "silver/orders", "gold/totals"]
    assert "bronze/orders: about 0.6 s and 0.000037 USD, by defaults" in lines
    assert "bronze/orders, d=1: 3 files, 303 B" in lines
    assert lines[-1].split() == ["102", "B", "d=1/small-2"]


def test_nothing_is_written_by_a_plan(told: Terminal) -> None:
    before = sorted(told.home.rglob("*"))
    told.run("plan")
    told.run("health")
    told.run("compact", "bronze/orders", "--dry-run")
    assert sorted(told.home.rglob("*")) == before


def test_a_table_that_cannot_be_planned_does_not_hide_the_others(told: Terminal) -> None:
    (told.root / "bronze/orders/_delta_log/00000000000000000001.json").unlink()
    result = told.run("plan")
    assert result.exit_code == 1
    assert "silver/orders" in result.stdout and "NOTHING_SHARES_A_BIN" in result.stdout
    assert result.stderr.startswith("Broken: log of bronze/orders")
    documents = told.json("plan", exit_code=1)
    assert [(each["reason"], each["version"]) for each in documents] == [("BROKEN", None), ("NOTHING_SHARES_A_BIN", 3), ("NO_TABLE", None)]


def test_an_unknown_table_is_refused_with_the_nearest_names(told: Terminal) -> None:
    result = told.run("plan", "silver/order")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "Refused: table 'silver/order' is not declared; did you mean silver/orders or bronze/orders?\n"
    assert "did you mean" in told.run("compact", "orders").stderr


def test_a_table_that_does_not_exist_yet_is_not_compacted(told: Terminal) -> None:
    result = told.run("compact", "gold/totals")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "lakehouse materialize gold/totals" in result.stderr


def test_a_table_with_nothing_to_merge_is_left_alone_at_once_and_told_why(told: Terminal) -> None:
    plan = told.json("plan", "silver/orders")[0]
    done = told.json("compact", "silver/orders", LAKEHOUSE_SPARK="sc://nowhere:1")
    assert {name: done[name] for name in plan} == plan
    assert (done["version_after"], done["actual_files_removed"], done["actual_files_added"]) == (None, 0, 0)
    assert plan["sentence"] in told.run("compact", "silver/orders", LAKEHOUSE_SPARK="sc://nowhere:1").stdout
