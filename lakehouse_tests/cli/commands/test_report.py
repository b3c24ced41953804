"""`lakehouse report`."""

from lakehouse_tests.cli.conftest import Terminal


def test_report_writes_one_page_with_every_table_and_what_needs_a_person(told: Terminal) -> None:
    out = told.home / "morning.html"
    printed = told.run("report", "--out", str(out)).stdout
    assert printed == f"{out}: 2 items for your attention, 3 tables\n"
    html = out.read_text()
    for key in ("bronze/<wbr>orders", "silver/<wbr>orders", "gold/<wbr>totals"):
        assert key in html
    assert "lakehouse vacuum silver/orders --dry-run" in html
    assert "the oldest of its 3 mergeable files" not in html  # it is due, so nothing holds it back


def test_json_has_the_values_of_the_page_and_writes_nothing(told: Terminal) -> None:
    values = told.json("report")
    tables = {table["table"]: table for table in values["tables"]}
    assert (tables["bronze/orders"]["file_count"], tables["bronze/orders"]["is_due"]) == (5, True)
    assert tables["gold/totals"]["exists"] is False
    assert [each["concern"] for each in values["attention"]] == ["INVENTORY_LATE", "VACUUM_LATE"]
    assert not (told.root / "_lakehouse" / "reports").exists()


def test_a_file_that_cannot_be_written_is_refused(told: Terminal) -> None:
    sentence = told.refused("report", "--out", str(told.home / "no" / "such" / "folder.html"))
    assert "cannot be written" in sentence and "Use another file" in sentence
