"""The page: well formed, without scripts or the network, and with the values of its report."""

import re
from html.parser import HTMLParser
from typing import Any

from lakehouse.report.run import render_page

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
VOID = {"meta", "wbr", "br", "circle", "polyline"}
# HTML allows these to be left open.
OPTIONAL = {"th"}


class Reader(HTMLParser):
    """The tags, the shown text, and what is not closed as it was opened."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.errors: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.errors += self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID | OPTIONAL:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        self.texts.append(" ")
        if self._open[-1:] != [tag]:
            self.errors.append(f"</{tag}> ends {self._open[-1:]}")
        else:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._open[-1:] != ["style"]:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.texts).split())


def table(key: str = "bronze/orders", **health: Any) -> dict[str, Any]:
    compaction = {
        "operation": "compact",
        "is_due": True,
        "net_benefit": {"cost_usd": 0.0123},
        "reason": "SMALL_FILES",
        "sentence": "9 merge",
    }
    known = {
        "score": 41.2,
        "sentence": "41 of 100",
        "file_count": 1_234,
        "small_file_count": 1_200,
        "size_bytes": 5 << 30,
        "committed_ms": NOW_MS - 3 * HOUR_MS,
    }
    return {
        "table": key,
        "owner": "sales",
        "problem": "",
        "paused": "",
        "health": {**known, **health},
        "operations": [compaction],
        "file_counts": [[NOW_MS - HOUR_MS, 3], [NOW_MS, 1_234]],
    }


def run(key: str = "bronze/orders", **changed: Any) -> list[dict[str, Any]]:
    names = ("files_removed", "files_added", "bytes_removed", "seconds", "usd")
    numbers = (9, 1, 900, 2.5, 0.002)
    figures = {name: {"actual": number} for name, number in zip(names, numbers, strict=True)}
    known = {"sentence": "9 small files", "as_predicted": True, "figures": figures}
    compaction = {**known, **changed}
    commit = {"committed_ms": NOW_MS - 5 * HOUR_MS, "compaction": compaction}
    return [{"table": key, "commits": [commit, {"committed_ms": 1, "compaction": None}]}]


def costs(*names: str) -> dict[str, Any]:
    groups = [
        {
            "name": name,
            "size_bytes": 1 << 30,
            "storage_usd": 1.5,
            "compute_usd": 0.0025,
            "requests_usd": 0.0,
            "usd": 1.5025,
        }
        for name in names
    ]
    return {"since": "S", "until": "U", "stored_days": 1, "usd": 4.5, "groups": groups}


def report(**changed: Any) -> dict[str, Any]:
    item = {"table": "bronze/orders", "sentence": "it fails"}
    return {
        "lake": "s3://bucket/lake",
        "created_ms": NOW_MS,
        "attention": [item],
        "tables": [table()],
        "history": run(),
        "costs": costs("bronze/orders"),
        "costs_by_day": [[NOW_MS, 1.5], [NOW_MS + 24 * HOUR_MS, 3.0]],
        **changed,
    }


def test_the_page_is_well_formed_and_needs_no_other_file_and_no_network() -> None:
    read = Reader(html := render_page(report()))
    assert read.errors == []
    assert not re.search(r"https?:|@import|url\(|src=|href=", html)
    assert {tag for tag, _ in read.tags}.isdisjoint({"script", "link", "iframe", "img", "object"})


def test_the_values_on_the_page_are_those_of_the_report() -> None:
    shown = Reader(render_page(report())).text
    for text in (
        "1 need attention 41 lowest health of 1 table 1 due now 1 compactions",
        "4.5 USD since S",
        "4.5 USD on 2 days by costs/chargeback",
        "bronze/orders : it fails",
        "41 bronze/orderssales 1,234 from 3 to 1,234, at most 1,234 1,200 5 GiB 1.5 3 h ago compact",
        ", 0.0123 USD: 9 merge",
        "5 h ago bronze/orders 9 → 1 900 B 2.5 s 0.002 as predicted 9 small files",
        "bronze/orders 1 GiB 1.5 0.0025 0 1.5",
    ):
        assert text in shown, (text, shown)
    wrong = Reader(render_page(report(history=run(as_predicted=False)))).text
    assert "not as predicted" in wrong
    theirs = Reader(render_page(report(history=run(as_predicted=None)))).text
    assert "not predicted" in theirs


def test_what_is_unknown_is_never_shown_as_0() -> None:
    unknown = table(score=None, sentence="it does not exist yet")
    nothing = costs() | {"usd": 0.0, "until": None}
    page = report(attention=[], tables=[unknown], history=[], costs=nothing, costs_by_day=[])
    shown = Reader(render_page(page)).text
    assert "0 need attention – lowest health" in shown and "– since S" in shown
    assert "– bronze/orderssales it does not exist yet" in shown
    assert "Nothing." in shown and "Unknown: costs/chargeback has no row yet" in shown


def test_a_name_that_is_html_shows_as_text() -> None:
    evil = "<script>alert(1)</script>\u202e"
    item = {"table": evil, "sentence": evil}
    hostile = table(evil, sentence=evil)
    hostile["owner"] = evil
    hostile["operations"][0]["sentence"] = evil
    page = report(
        lake=evil,
        attention=[item],
        tables=[hostile],
        history=run(evil, sentence=evil),
        costs=costs(evil),
    )
    read = Reader(html := render_page(page))
    assert read.errors == [] and "script" not in {tag for tag, _ in read.tags}
    assert "<script" not in html and read.text.count("<script>alert(1)</script>") == 10
    assert "\u202e" not in html and "\\u202e" in html


def test_a_thousand_tables_leave_a_page_of_which_most_is_folded() -> None:
    tables = [table(f"bronze/t{number}") for number in range(1000)]
    read = Reader(html := render_page(report(tables=tables)))
    assert read.errors == [] and len(html) < 1_500_000
    visible = re.sub(r"<details>.*?</details>", "", html, flags=re.DOTALL)
    assert visible.count('class="pill') == 30 and html.count('class="pill') == 1000
    assert "970 more tables" in html
