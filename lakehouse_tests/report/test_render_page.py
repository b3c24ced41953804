"""The morning page: well-formed, escaped, without any other file, and with the numbers of its values."""

import re
from dataclasses import replace
from html.parser import HTMLParser

from lakehouse.core.costs.operations import UpkeepOperation
from lakehouse.core.costs.predicted_and_actual import Figure
from lakehouse.core.report.attention import Attention, Concern
from lakehouse.core.report.money import ExpensiveTable, Money, NamedAmount
from lakehouse.core.report.page_contents import Page
from lakehouse.core.report.values import RecordsSize, ReportedTable, StoredBytes, StoredShare
from lakehouse.report.render_page import render_page, usd_text

NOW_MS = 1_795_000_000_000
HOUR_MS = 3_600_000
ORDERS = ReportedTable(
    table="bronze/orders",
    owner="sales",
    score=41.26,
    file_count=1234,
    small_file_count=1200,
    size_bytes=5 * 1024**3,
    row_count=77,
    file_counts=((NOW_MS - 9 * HOUR_MS, 3), (NOW_MS - HOUR_MS, 1234)),
    last_write_ms=NOW_MS - 3 * HOUR_MS,
    last_compaction_ms=NOW_MS - 72 * HOUR_MS,
    is_due=True,
    reason="DUE",
    decision="1200 mergeable files reach the threshold of 40",
)
WAITING = ReportedTable(
    table="silver/waits",
    score=99.0,
    reason="BELOW_THRESHOLD",
    decision="7 mergeable files, 16 needed",
)
MONEY = Money(
    region="eu-central-1",
    as_of="2026-11",
    is_on_s3=False,
    has_storage=True,
    known_days=3,
    week_usd=1.25,
    month_usd=4.5,
    forecast_usd=13.5,
    dead_usd=0.0123,
    dearest=(
        ExpensiveTable(
            table="(outside all tables)",
            owner="",
            usd_per_month=9.0,
            parts=(),
            why="100% other files",
            advice="The report shows their folders",
            command="lakehouse inventory report",
            is_outside=True,
        ),
        ExpensiveTable(
            table="bronze/orders",
            owner="sales",
            usd_per_month=7.5,
            parts=(NamedAmount(name="live data", usd=7.5),),
            why="100% live data",
            advice="Archive it",
            command="lakehouse inventory report bronze/orders",
        ),
    ),
    by_layer=(NamedAmount(name="bronze", usd=4.5),),
    by_owner=(NamedAmount(name="sales", usd=4.25),),
    by_kind=(NamedAmount(name="storage: live", usd=3.75),),
)
VACUUM = UpkeepOperation(
    table="silver/waits",
    kind="vacuum",
    operation_id="1",
    ended_ms=NOW_MS - 5 * HOUR_MS,
    is_ok=False,
    why="12 files that no version needs",
    seconds=180.0,
    usd=0.25,
    figures=(Figure("files", 12, 12), Figure("bytes", 3 * 1024**2, 5 * 1024**2)),
)
PAGE = Page(
    lake="/lake",
    created_ms=NOW_MS,
    since_ms=NOW_MS - 7 * 24 * HOUR_MS,
    money=MONEY,
    runs=(VACUUM, replace(VACUUM, is_ok=True, reason="NOTHING_PAST", usd=None)),
    attention=(
        Attention(
            concern=Concern.QUARANTINE,
            table="bronze/orders",
            sentence="9 records in quarantine",
            command="lakehouse quarantine show bronze/orders",
        ),
    ),
    tables=(ORDERS, WAITING),
    stored=StoredBytes(
        report="lakehouse-scan/x",
        created_ms=NOW_MS - HOUR_MS,
        shares=(
            StoredShare(
                part="data files of the newest version",
                kind="live",
                storage_class="STANDARD",
                file_count=2345,
                size_bytes=6 * 1024**3,
            ),
        ),
    ),
    records=RecordsSize(
        size_bytes=3 * 1024**2, run_count=31, before_bytes=1024**2, before_ms=NOW_MS - 24 * HOUR_MS
    ),
)
VOID = {"meta", "br", "rect", "circle", "polyline", "wbr", "th", "link", "img", "input"}


class Reader(HTMLParser):
    """The texts of a page, its tags, and whether each end tag ends the innermost element."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.texts, self.tags = list[str](), list[tuple[str, dict[str, str | None]]]()
        self.errors, self._open = list[str](), list[str]()
        self.feed(html)
        self.close()
        self.errors += [f"{tag} is not closed" for tag in self._open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        self.texts.append(" " if tag in ("td", "div", "h3", "p") else "")
        if not self._open or self._open[-1] != tag:
            self.errors.append(f"</{tag}> ends {self._open[-1:]}")
        else:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._open[-1:] != ["style"]:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.texts).split())


def test_the_page_is_well_formed_and_needs_no_other_file_and_no_network() -> None:
    read = Reader(html := render_page(PAGE))
    assert read.errors == []
    outside = [
        value
        for _, attributes in read.tags
        for name, value in attributes.items()
        if name in ("src", "href", "srcset", "action") and not str(value).startswith("#")
    ]
    assert outside == []
    assert not re.search(r"https?:|@import|url\(", html)
    assert {tag for tag, _ in read.tags}.isdisjoint({"script", "link", "iframe", "img", "object"})


def test_the_numbers_on_the_page_are_those_of_its_values() -> None:
    shown = Reader(render_page(PAGE)).text
    for text in (
        "41 bronze/orders from 3 to 1,234, at most 1,234 1,234 1,200 5 GiB 3 h ago 3 d ago none known due",
        "9 records in quarantine lakehouse quarantine show bronze/orders",
        "below threshold 1 table silver/waits: 7 mergeable files, 16 needed",
        "6 GiB by the inventory of",
        "data files of the newest version STANDARD 2,345 6 GiB",
        "3 MiB, 31 runs; +2 MiB since",
        "Costs most bronze/orders 7.50 USD a month: 100% live data. Archive it:",
        "vacuum 2 1 6 min 0.25 USD + 1 unknown files 0% · bytes 40%",
        "5 h ago silver/waits vacuum failed 12 files that no version needs bytes 3 MiB → 5 MiB",
        "Not listed: 1 vacuum that found nothing to delete.",
        "eu-central-1, 2026-11; days of this month whose costs are known: 3. The lake is on a disk",
        "Last seven days 1.25 USD This month so far 4.50 USD",
        "Forecast for this month 13.50 USD Dead bytes, a month 0.0123 USD",
        "bronze/orders sales 7.50 USD 100% live data Archive it.lakehouse inventory report bronze",
        "bronze: 4.50 USD Owner sales: 4.25 USD Kind storage: live: 3.75 USD",
        "bronze/orders rows are deleted 90 days after their at 5 6,789 2 MiB 1970-01-01 to 1970-01-02 version",
    ):
        assert text in shown, text


def test_what_is_unknown_is_never_shown_as_0() -> None:
    unknown = ReportedTable(table="bronze/orders", reason="NO_FACTS", decision="no facts")
    page = Page(
        lake="/lake",
        created_ms=NOW_MS,
        tables=(unknown,),
        stored=StoredBytes(problem="there is no report"),
        records=RecordsSize(size_bytes=1024),
    )
    shown = Reader(render_page(page)).text
    row = shown.partition("compaction now ")[2].partition("What did not run")[0]
    assert row.startswith(
        "– bronze/orders unknown unknown unknown none known none known none known"
    )
    assert "there is no report" in shown and "unknown runs; growth unknown" in shown


def test_a_name_that_is_html_shows_as_text() -> None:
    evil = "<script>alert(1)</script>"
    page = replace(
        PAGE,
        lake=evil,
        attention=(
            Attention(concern=Concern.PAUSED, table=evil, sentence=f"{evil}\u202e", command=evil),
        ),
        money=replace(MONEY, dearest=(replace(MONEY.dearest[1], table=evil, owner=evil),)),
        runs=(replace(VACUUM, table=evil, why=evil),),
        tables=(
            replace(ORDERS, table=evil, owner=evil),
            replace(WAITING, table=evil, decision=evil),
        ),
        stored=StoredBytes(problem=evil),
    )
    read = Reader(html := render_page(page))
    assert read.errors == [] and "script" not in {tag for tag, _ in read.tags}
    assert "<script" not in html and read.text.count(evil) == 19
    assert "\u202e" not in html and "\\u202e" in html


def test_a_thousand_tables_leave_a_page_of_which_most_is_folded() -> None:
    tables = tuple(
        replace(ORDERS, table=f"bronze/t{number}", score=number / 10) for number in range(1000)
    )
    read = Reader(html := render_page(replace(PAGE, tables=tables)))
    assert read.errors == [] and len(html) < 1_500_000
    visible = re.sub(r"<details>.*?</details>", "", html, flags=re.DOTALL)
    assert 12 <= visible.count('<tr>\n<td data-label="score">') <= 20
    assert "988 more tables" in html and html.count('data-label="score"') == 1000


def test_amounts_of_money_have_cents_or_three_digits() -> None:
    assert [usd_text(usd) for usd in (0, 1234.5, 0.0123456, 0.00001234)] == [
        "0.00 USD",
        "1,234.50 USD",
        "0.0123 USD",
        "0.0000123 USD",
    ]
