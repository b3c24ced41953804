"""`lakehouse report`."""

from lakehouse_tests.support.terminal import Terminal


def test_report_writes_one_page_with_every_table_and_what_needs_a_person(told: Terminal) -> None:
    out = told.home / "morning.html"
    printed = told.run("report", "--out", str(out)).stdout
    assert printed == f"{out}: 0 items for your attention, 3 tables\n"
    html = out.read_text()
    for key in ("bronze/<wbr>orders", "silver/<wbr>orders", "gold/<wbr>totals"):
        assert key in html


def test_json_has_the_documents_of_other_commands_and_writes_nothing(told: Terminal) -> None:
    report = told.json("report")
    tables = {table["table"]: table for table in report["tables"]}
    for health in told.json("health"):
        assert tables[health["table"]]["health"].items() <= health.items()
    for rank_and_plan in told.json("plan"):
        plan = {name: value for name, value in rank_and_plan.items() if name != "rank"}
        assert plan in tables[plan["table"]]["operations"]
    assert report["attention"] == []
    assert not (told.root / "_lakehouse" / "reports").exists()


def test_a_file_that_cannot_be_written_is_refused(told: Terminal) -> None:
    sentence = told.refused("report", "--out", str(told.home / "no" / "such" / "folder.html"))
    assert "cannot be written" in sentence and "Use another file" in sentence
