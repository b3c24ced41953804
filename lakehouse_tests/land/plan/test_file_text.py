"""A file's content becomes records: whole, numbered, and none is lost; a binary file is refused with its format."""

import bz2
import csv
import gzip
import io
import lzma
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from io import BytesIO
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse.declare.landing import Csv, Dms, Landing
from lakehouse.land.plan import file_text, records
from lakehouse.land.plan.file_text import (
    GZIP,
    detect_format,
    read_records,
    retried_path,
    retried_text,
    simple_lines,
)
from lakehouse.land.plan.records import CsvFields, Record, Unreadable

COLUMNS = ("code", "n", "comment")
CSV = Landing(prefix="landing/c/", format="csv", schema="code STRING, n INT, comment STRING")
JSON = replace(CSV, format="json")
HEADER = b"code,n,comment\n"
LIMIT = 10_000_000


class Plain(NamedTuple):
    """A record without its undeclared fields."""

    line: int
    content: bytes
    problem: str | None


def json_records(data: bytes, *, packed: bool = False, limit: int = LIMIT) -> list[Plain]:
    compression = GZIP if packed else None
    found = read_records(data, JSON, compression=compression, max_content_bytes=limit)
    return [Plain(*each[:3]) for each in found]


def csv_records(data: bytes, landing: Landing = CSV) -> list[Plain]:
    return [Plain(*each[:3]) for each in read_records(data, landing, max_content_bytes=LIMIT)]


_JSON_PARTS = (
    '{"code":"a\\u00e9","n":1,"comment":null}', '{"n": -7}', "{}", '{"n":1.5}', '{"n":1,}', '{"N":1}',
    '{"code":"\\ud800"}', '{"n":1}{"n":2}', "[1]", "\n", "\n", "\n", "\r", " ", "\u2028", "\x0b",
)  # fmt: skip
_CSV_PARTS = ("a,1,x", "b,,", ",,", "a,b", "é,2,\u2028", '"a\nb",1,', "'", "\n", "\n", "\n", "\r", " \t", "\x0b")  # fmt: skip


@given(st.lists(st.sampled_from(_JSON_PARTS)), st.lists(st.sampled_from(_CSV_PARTS)))
def test_lines_that_are_staged_at_once_are_the_records_that_are_read_one_by_one(
    of_json: list[str], of_csv: list[str]
) -> None:
    for landing, text in ((JSON, "".join(of_json)), (CSV, f"{HEADER.decode()}{''.join(of_csv)}")):
        found = simple_lines(text.encode(), landing)
        if found is not None:
            fields, lines = found
            numbered = [*enumerate(lines, start=1)][int(fields is not None) :]
            records = [Record(number, line.encode(), fields=fields) for number, line in numbered]
            assert records == [*read_records(text.encode(), landing, max_content_bytes=LIMIT)]


def test_only_texts_without_a_question_are_staged_at_once() -> None:
    assert simple_lines(b'{"n":1}\n{"code":"x"}\n', JSON) == (None, ['{"n":1}', '{"code":"x"}'])
    assert simple_lines(HEADER + b"a,1,x", CSV) == (
        CsvFields(COLUMNS, True),
        ["code,n,comment", "a,1,x"],
    )
    for content in (
        b"",
        b'{"n":1}\n\n',
        b'{"other":1}\n',
        b'\xef\xbb\xbf{"n":1}\n',
        b'{"code":"\xff"}\n',
    ):
        assert simple_lines(content, JSON) is None
    for content in (b"", HEADER + b'a,1,"x"\n', HEADER + b"\na,1,x\n", HEADER + b"\xff,1,x\n"):
        assert simple_lines(content, CSV) is None
    assert simple_lines(HEADER + b"a,1,x\n", replace(CSV, encoding="latin-1")) is None


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_lines_end_in_any_of_three_ways_and_blank_ones_are_left_out_whatever_the_chunk(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_text, "_CHUNK_BYTES", size)
    assert json_records(b'{"a": 1}\r\n\n  \t\r{"b": 2}\r{"c": 3}\n{"d": 4}') == [
        (1, b'{"a": 1}', None),
        (4, b'{"b": 2}', None),
        (5, b'{"c": 3}', None),
        (6, b'{"d": 4}', None),
    ]


def test_a_line_over_the_limit_is_one_bad_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MAX_RECORD_BYTES", 2_000)
    for size in (500, 10_000):
        monkeypatch.setattr(file_text, "_CHUNK_BYTES", size)
        first, long, last, end = json_records(b"{}\n" + b"x" * 5_000 + b"\r\n[]\n" + b"y" * 3_000)
        assert (first, last) == ((1, b"{}", None), (3, b"[]", "not JSON"))
        for record, line, sign in ((long, 2, b"x"), (end, 4, b"y")):
            expected = (line, sign * 1_000, "the line has more than 2000 bytes, the limit")
            assert (record.line, record.content, record.problem) == expected


STRAY = {
    "never closed": b'B,2,"not closed\nC,3,lost\n',
    "opened behind a line break in quotes": b'"B\r\n2",2,"x\nC,3,lost',
    "at the end": b'B,2,"',
    "doubled at the end": b'B,2,"x""\n',
    "closed by the quote of a later field": b'B,2,"x\nC,3,"lost"\n',
    "not doubled": b'B,2,"x"y\nC,3,z\n',
}


@pytest.mark.parametrize("bad", STRAY.values(), ids=STRAY)
@pytest.mark.parametrize("size", [1, 1_000])
def test_a_file_with_a_stray_quote_gives_no_record_and_the_line_where_its_record_begins(
    bad: bytes, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_text, "_CHUNK_BYTES", size)
    found = read_records(HEADER + b"A,1,x\n" + bad, CSV, max_content_bytes=LIMIT)
    with pytest.raises(Unreadable, match="record that begins in line 3 is unknown: it has a quote"):
        next(found)


def test_so_does_one_with_a_record_over_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MAX_RECORD_BYTES", 2_000)
    for size in (500, 10_000):
        monkeypatch.setattr(file_text, "_CHUNK_BYTES", size)
        for long in (b'"' + b"x" * 3_000 + b'"', b"x" * 3_000, b'"' + b"x" * 3_000):
            with pytest.raises(Unreadable, match=r"begins in line 3 .* or more than 2000 bytes"):
                csv_records(HEADER + b"A,1,x\nB,2," + long + b"\nC,3,z\n")


@pytest.mark.parametrize(
    ("data", "names"),
    [(b"code,n\nA,1\n", ("code", "n")), (b"n,comment,\n1,x,y\n", ("n", "comment", "_c2"))],
)
def test_records_have_the_fields_of_their_header(data: bytes, names: tuple[str, ...]) -> None:
    landing = replace(CSV, schema="n INT, comment STRING") if "_c2" in names else CSV
    [record] = read_records(data, landing, max_content_bytes=LIMIT)
    assert record == Record(2, data.splitlines()[1], fields=CsvFields(names, has_header=True))


@pytest.mark.parametrize(
    ("data", "required"),
    {
        "a misspelt name": (b"code,n,coment\nA,1,x\n", ()),
        "a name in another case": (b"CODE,n\nA,1\n", ()),
        "a required column is absent": (b"n,comment\n1,x\n", ("code",)),
        "most columns are absent": (b"code\nA\n", ()),
        "there is no header": (b"A,1,x\n", ()),
        "another order": (b"n,code\n1,A\n", ()),
        "another delimiter": (b"code;n\nA;1\n", ()),
        "a name twice": (b"code,code\nA,B\n", ()),
        "a name twice in two cases": (b"code,n,comment,CODE\nA,1,x,B\n", ()),
    }.values(),
)
@pytest.mark.parametrize("new_columns", ["rescue", "add", "refuse"])
def test_a_header_that_lacks_columns_is_not_taken_where_it_may_be_misread(
    data: bytes, required: tuple[str, ...], new_columns: Any
) -> None:
    landing = replace(CSV, required=required, new_columns=new_columns)
    with pytest.raises(Unreadable, match=r"its header is .* and not code,n,comment"):
        csv_records(data, landing)


def test_a_file_without_a_header_begins_with_its_first_row() -> None:
    expected = [(1, b"A,1,x", None), (2, b"B,2,y", None)]
    assert csv_records(b"A,1,x\nB,2,y", replace(CSV, csv=Csv(header=False))) == expected
    assert csv_records(b"", replace(CSV, csv=Csv(header=False))) == []


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "cp1252", "utf-8-sig", "shift_jis"])
def test_text_of_another_encoding_is_read_as_declared(encoding: str) -> None:
    text = (
        "code;n;comment\nA;1;ソート\n"
        if encoding in ("utf-16", "shift_jis")
        else "code;n;comment\nA;1;é\n"
    )
    [record] = csv_records(
        text.encode(encoding), replace(CSV, csv=Csv(delimiter=";"), encoding=encoding)
    )
    assert record.content.decode() == text.splitlines()[1]


@pytest.mark.parametrize("landing", [CSV, JSON])
@pytest.mark.parametrize("compression", [None, GZIP])
def test_a_file_that_is_not_of_its_encoding_gives_no_record_at_all(
    landing: Landing, compression: file_text.Compression | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_text, "_CHUNK_BYTES", 100)
    data = HEADER + b"A,1,x\n" * 1_000 + b"B,2,\x81\n"
    packed = data if compression is None else gzip.compress(data)
    message = r"its encoding is not cp1252, which Landing.encoding declares .*; land it again, or declare its encoding"
    with pytest.raises(Unreadable, match=message):
        next(
            read_records(
                packed,
                replace(landing, encoding="cp1252"),
                compression=compression,
                max_content_bytes=LIMIT,
            )
        )


def test_what_unpacks_to_more_than_the_limit_is_not_unpacked_further() -> None:
    bomb = gzip.compress(b"\n" * 60_000_000, compresslevel=9)
    assert len(bomb) < 100_000
    with pytest.raises(Unreadable, match="it unpacks to more than 5000000 bytes"):
        json_records(bomb, packed=True, limit=5_000_000)


TEXT = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6),
    st.sampled_from(['"', ",", "\n", "\r\n", "\r", ' "', 'a"b']),
)


SIGNS = [
    CSV,
    replace(CSV, csv=Csv(delimiter=";")),
    replace(CSV, csv=Csv(delimiter="\t", quote="'")),
    replace(CSV, csv=Csv(delimiter="\x01", quote="|")),
]


@given(
    rows=st.lists(st.tuples(TEXT, TEXT, TEXT), max_size=6),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    size=st.integers(1, 40),
    landing=st.sampled_from(SIGNS),
)
def test_every_row_of_a_csv_writer_is_one_record_on_its_line(
    rows: Sequence[tuple[str, ...]], end: str, size: int, landing: Landing
) -> None:
    file = io.StringIO(newline="")
    # By itself the writer puts no other line break into quotes than its own.
    quoting = (
        csv.QUOTE_ALL
        if any(sign in value for row in rows for value in row for sign in "\r\n")
        else csv.QUOTE_MINIMAL
    )
    signs = {"delimiter": landing.csv.delimiter, "quotechar": landing.csv.quote}
    writer = csv.writer(file, lineterminator=end, quoting=quoting, **signs)
    expected: list[tuple[int, list[str]]] = []
    for row in [COLUMNS, *rows]:
        line = file.getvalue().replace("\r\n", "\n").replace("\r", "\n").count("\n") + 1
        writer.writerow(row)
        expected.append((line, [*row]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_text, "_CHUNK_BYTES", size)
        found = csv_records(file.getvalue().encode(), landing)
    assert [(record.line, parsed(record, **signs)) for record in found] == expected[1:]


def parsed(record: Plain, **signs: str) -> list[str]:
    [row] = csv.reader(list(io.StringIO(record.content.decode(), newline="")), **signs)
    return row


@given(st.binary(max_size=60), st.integers(1, 20))
def test_any_bytes_are_read_or_refused_whatever_the_chunk(data: bytes, size: int) -> None:
    def outcome() -> list[object]:
        found: list[object] = []
        for kind, packing, content in (
            (JSON, None, data),
            (JSON, GZIP, data),
            (CSV, None, data),
            (CSV, None, HEADER + data),
        ):
            read = read_records(content, kind, compression=packing, max_content_bytes=LIMIT)
            try:
                found.append([*read])
            except Unreadable as error:
                found.append(str(error))
        return found

    whole = outcome()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_text, "_CHUNK_BYTES", size)
        assert outcome() == whole


@pytest.mark.parametrize(
    ("line", "staged"),
    {
        "a fraction": ('{"id":1,"name":1.10}', '{"id": 1, "name": "1.10"}'),
        "more digits than a double has": (
            '{"name":12345678901234567890.5}',
            '{"name": "12345678901234567890.5"}',
        ),
        "an object": (
            '{"name":{"a": 0.1234567890123456789},"x":"y"}',
            '{"name": "{\\"a\\": 0.1234567890123456789}", "x": "y"}',
        ),
        "a key twice": ('{"name":1.0,"name":2.50}', '{"name": "2.50"}'),
        "a whole number": (
            '{"id":1.5,"name":12345678901234567890}',
            '{"id":1.5,"name":12345678901234567890}',
        ),
        "a text": ('{"id":1.5,"name":"1.10"}', '{"id":1.5,"name":"1.10"}'),
    }.values(),
)
def test_a_text_column_gets_what_was_sent_and_not_a_double(line: str, staged: str) -> None:
    assert staged_as(line, replace(JSON, schema="id INT, name STRING NOT NULL")) == [staged]


def staged_as(line: str, landing: Landing) -> list[str]:
    return [
        record.content.decode()
        for record in read_records(line.encode(), landing, max_content_bytes=LIMIT)
    ]


def dms_records(data: bytes) -> list[tuple[bytes, str]]:
    """The records, each with the names of its fields."""
    landing = replace(
        CSV, schema="Op STRING, id INT, name STRING", null_value="NULL", changes=Dms()
    )
    records = read_records(data, landing, max_content_bytes=LIMIT)
    return [(each.content, " ".join(each.fields.names)) for each in records if each.fields]


@pytest.mark.parametrize(
    ("data", "names", "found"),
    {
        "changes with a header": (b"Op,id,name\nI,1,a\nD,2,\n", "Op id name", [b"I,1,a", b"D,2,"]),
        "changes without one": (b'U,2,"x,\ny"\n', "Op id name", [b'U,2,"x,\ny"']),
        "a first record with a large field": (
            b"I,1," + b"x" * 200_000,
            "Op id name",
            [b"I,1," + b"x" * 200_000],
        ),
        "a full load with a header and no operation": (b"id,name\n1,a\n", "id name", [b"1,a"]),
        "a full load with neither": (b"1,a\n2,b", "id name", [b"1,a", b"2,b"]),
        "a full load with a header and values like an operation": (
            b"id,name\nD,a\n",
            "id name",
            [b"D,a"],
        ),
        "a header without a column": (b"Op,id\nI,1\n", "Op id", [b"I,1"]),
        "one without the operation, too": (b"id\n1\n", "id", [b"1"]),
        "a header alone": (b"Op,id,name\n", "", []),
        "nothing": (b"", "", []),
    }.values(),
)
def test_a_file_of_dms_has_a_header_or_none_and_a_full_load_may_lack_the_operation(
    data: bytes, names: str, found: list[bytes]
) -> None:
    assert dms_records(data) == [(content, names) for content in found]


def test_a_file_of_dms_that_lacks_a_before_image_is_unreadable() -> None:
    landing = replace(
        CSV, schema="Op STRING, id INT, name STRING, BI_id INT", null_value="", changes=Dms()
    )
    with pytest.raises(Unreadable, match="its header is 'Op,id,name' and not Op,id,name,BI_id"):
        csv_records(b"Op,id,name\nU,1,a\n", landing)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"I,1,a,b\n", "its first record has 4 fields, 3 are declared: Op,id,name$"),
        (b"Op,name,id\nI,a,1\n", "its header is 'Op,name,id' and not Op,id,name"),
        (b"name,id\na,1\n", "its header is 'name,id' and not Op,id,name"),
        (b"OP,ID,NAME\nI,1,a\n", "its header is 'OP,ID,NAME' and not Op,id,name"),
        (b"op,id,city\nI,1,a\n", "its header is 'op,id,city' and not Op,id,name"),
        (b"D,1\n", "its first record has 2 fields and begins with 'D', an operation or a value of"),
    ],
)
def test_a_file_of_dms_with_other_columns_is_unreadable(data: bytes, why: str) -> None:
    with pytest.raises(Unreadable, match=f"^{why}"):
        dms_records(data)


LINES = b'{"id": 1}\n' * 1_000


def zipped(data: bytes) -> bytes:
    file = BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.json", data)
    return file.getvalue()


BINARY: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zip": zipped,
    "zstd": lambda data: b"\x28\xb5\x2f\xfd" + data,
    "lz4": lambda data: b"\x04\x22\x4d\x18" + data,
    "framed Snappy": lambda data: b"\xff\x06\x00\x00sNaPpY" + data,
    "7z": lambda data: b"7z\xbc\xaf\x27\x1c" + data,
    "Parquet": lambda data: b"PAR1\x15\x04" + data + b"PAR1",
    "Avro": lambda data: b"Obj\x01\x04\x14avro.codec" + data,
    "ORC": lambda data: b"ORC\n\x06\x12\x04\x08\x05" + data,
}


@pytest.mark.parametrize("landing", [JSON, CSV], ids=["json", "csv"])
@pytest.mark.parametrize("name", BINARY)
def test_a_binary_file_gives_no_line_and_its_format_is_named(name: str, landing: Landing) -> None:
    data = BINARY[name](LINES)
    format = landing.format.upper()
    for content, compression, found in (
        (data, None, "its content"),
        (gzip.compress(data), GZIP, "the content of its gzip"),
    ):
        with pytest.raises(Unreadable, match=f"{found} is {name} and not {format}; land it again"):
            [*read_records(content, landing, compression=compression, max_content_bytes=10**6)]


@given(name=st.sampled_from(["BZh9", "PK", "PAR1", "Obj", "ORC", "ORC_ID", "7z"]), rest=st.text())
@pytest.mark.parametrize("delimiter", [",", "\t", "\x01"])
def test_a_header_may_begin_like_a_binary_signature(name: str, rest: str, delimiter: str) -> None:
    printable = "".join(sign for sign in rest if sign.isprintable())
    assert detect_format(f"{name}{delimiter}{printable}\n".encode()) is None


@given(
    st.dictionaries(st.text(), st.integers()).map(str) | st.text(st.characters(categories=["L"]))
)
def test_text_is_no_binary_format(text: str) -> None:
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        assert detect_format(text.encode(encoding)) is None


CODES = Landing(
    prefix="landing/codes/", format="csv", schema="code STRING, name STRING", csv=Csv(delimiter=";")
)
ONE = replace(CODES, schema="code STRING")


def text_of(landing: Landing, *lines: tuple[str, str | None]) -> str:
    return retried_text(lines, landing)


def test_lines_are_written_as_they_were_with_their_undeclared_fields() -> None:
    expected = '"code";"name"\nA;"B ""x""\n"\nB;\n'
    assert text_of(CODES, ('A;"B ""x""\n"', None), ("B;", None)) == expected
    others = [("A;b", '{"m;o": "say \\"x\\"", "n": "1"}'), ("B;c", '{"p": " "}'), ("C;d", None)]
    assert text_of(CODES, *others) == (
        '"code";"name";"m;o";"n";"p"\nA;b;"say ""x""";"1";\nB;c;;;" "\nC;d;;;\n'
    )
    assert text_of(replace(CODES, csv=Csv(header=False)), ("A,b", None)) == "A,b\n"


def test_a_record_of_one_blank_field_is_no_blank_line() -> None:
    assert text_of(ONE, ("", None), ("  ", None)) == '"code"\n""\n"  "\n'
    assert text_of(replace(ONE, null_value="NA"), ("", None)) == '"code"\nNA\n'


def test_the_same_lines_give_the_same_path() -> None:
    ids = [("a", 1, "x"), ("b", 1, "y")]
    paths = {retried_path("bronze/codes", CODES, each) for each in (ids, ids[::-1], ids[:1])}
    assert len(paths) == 2
    assert all(path.startswith("landing/codes/_retry/bronze/codes/") for path in paths)
    assert all(CODES.takes(path) for path in paths)
