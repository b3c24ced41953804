"""The corpus: one file for each kind of bad input that is known by name."""

import bz2
import gzip
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse_tests.bad_input.landed import HEADER, Landed, csv_file, json_file, rows_file

DAY = datetime(2013, 1, 1, tzinfo=UTC)
# A line of JSON, and the row that it is, `None` for none.
JSON_LINES: dict[str, tuple[bytes, tuple[object, ...] | None]] = {
    "a key twice: the last one counts": (b'{"id":1,"id":2}', (2, None, None, None)),
    "a fraction for a whole number": (b'{"id":1.0}', None),
    "a text for a number": (b'{"id":"7"}', None),
    "one more than a long holds": (b'{"id":9223372036854775808}', None),
    "the least long": (b'{"id":-9223372036854775808}', (-9223372036854775808, None, None, None)),
    "an exponent": (b'{"id":1e2}', None),
    "an object for a text": (b'{"id":1,"state":{"a":[1,2]}}', (1, None, '{"a":[1,2]}', None)),
    "no number": (b'{"id":1,"x":NaN}', None),
    "endless": (b'{"id":1,"x":Infinity}', None),
    "beyond a double": (b'{"id":1,"x":1e999}', None),
    "2,000 digits": (b'{"id":' + b"1" * 2000 + b"}", None),
    "half a character": (rb'{"id":1,"state":"\ud800"}', None),
    "half a character in a name": (rb'{"id":1,"\ud800":1}', None),
    "both halves": (rb'{"id":1,"state":"\ud83d\ude00"}', (1, None, "\U0001f600", None)),
    "an escaped backslash": (rb'{"id":1,"state":"\\ud800"}', (1, None, "\\ud800", None)),
    "NUL, escaped": (rb'{"id":1,"state":"a\u0000b"}', (1, None, "a\0b", None)),
    "NUL": (b'{"id":1,"state":"a\0b"}', None),
    "a tab inside a text": (b'{"id":1,"state":"a\tb"}', None),
    "a day that is none": (b'{"id":1,"at":"2013-13-01"}', None),
    "the first moment": (
        b'{"id":1,"at":"0001-01-01T00:00:00Z"}',
        (1, datetime(1, 1, 1, tzinfo=UTC), None, None),
    ),
    "before the first moment": (b'{"id":1,"at":"0001-01-01T00:00:00+00:01"}', None),
    "the year 10000": (b'{"id":1,"at":"10000-01-01T00:00:00Z"}', None),
    "a day": (b'{"id":1,"at":"2013-01-01"}', (1, DAY, None, None)),
    "1,500 deep": (b'{"id":1,"u":' + b"[" * 1500 + b"]" * 1500 + b"}", None),
    "900 deep": (b'{"id":1,"u":' + b"[" * 900 + b"]" * 900 + b"}", (1, None, None, None)),
    "a comma too many": (b'{"id":1,}', None),
    "two objects": (b'{"id":1}{"id":2}', None),
    "a bracket behind": (b'{"id":1}]', None),
    "a comment behind": (b'{"id":1}//x', None),
    "no object": (b"[1]", None),
    "null": (b"null", None),
    "nothing in it": (b"{}", None),
    "another case": (b'{"ID":5}', None),
    "not UTF-8": (b'{"id":1,"state":"\xff"}', None),
    "a mark in the middle": (b'\xef\xbb\xbf{"id":1}', None),
    "UTF-16": ('{"id":1}'.encode("utf-16-le"), None),
    "cut": (b'{"id":1,"state":"ne', None),
    "blanks around": (b'  {"id" : 1 }  \t', (1, None, None, None)),
}
CSV_LINES: dict[str, tuple[bytes, tuple[object, ...] | None]] = {
    "a line break in quotes": (b'A,1,"x\nB,2,y"', ("A", 1, "x\nB,2,y")),
    "a carriage return in quotes": (b'A,1,"x\r\n\ry"', ("A", 1, "x\r\n\ry")),
    "doubled quotes": (b'A,1,"say ""hi"""', ("A", 1, 'say "hi"')),
    "a quote in the middle": (b'A,1,5" pipe', ("A", 1, '5" pipe')),
    "blanks in quotes": (b'A,1," a "', ("A", 1, " a ")),
    "blanks before quotes": (b'A,1, "a"', ("A", 1, ' "a"')),
    "blanks behind quotes": (b'A,1,"a" \t', ("A", 1, "a")),
    "a missing value": (b"A,,NA", ("A", None, None)),
    "a missing value in quotes, and an empty one": (b'A,"NA",""', ("A", None, "")),
    "an empty number in quotes": (b'A,"",x', None),
    "a required one missing": (b",1,x", None),
    "a column more": (b"A,1,x,y", None),
    "a column less": (b"A,1", None),
    "a blank before a number": (b"A, 1,x", ("A", 1, "x")),
    "a fraction": (b"A,1.0,x", None),
    "a number too large": (b"A,2147483648,x", None),
    "NUL": (b"A,1,a\0b", ("A", 1, "a\0b")),
    "not UTF-8": (b"A,1,\xff", None),
    "a backslash before a quote": (b'A,1,"\\"', ("A", 1, "\\")),
    "a sign of comments": (b"#A,1,x", ("#A", 1, "x")),
    "a formula": (b"=1+1,1,@x", ("=1+1", 1, "@x")),
    "tabs": (b"A,1,\tx\t", ("A", 1, "\tx\t")),
    "another delimiter": (b"A;1;x", None),
}


def corpus() -> Iterator[Landed]:
    """All of it, each line in a file of its own, between two that are good."""
    good: tuple[object, ...] = (7, None, None, None)
    for name, (line, row) in JSON_LINES.items():
        rows = {1: good, 3: good} | ({} if row is None else {2: row})
        yield json_file(name, b'{"id":7}\n' + line + b'\n{"id":7}', rows, *([] if row else [2]))
    good = ("Z", 7, "z")
    for name, (line, row) in CSV_LINES.items():
        last = 4 + len(line.replace(b"\r\n", b"\n").replace(b"\r", b"\n").splitlines()) - 1
        rows = {2: good, last: good} | ({} if row is None else {3: row})
        yield csv_file(
            name, HEADER + b"\nZ,7,z\n" + line + b"\nZ,7,z\n", rows, *([] if row else [3])
        )
    yield from _whole_files()
    yield from _of_rows()


def _whole_files() -> list[Landed]:
    line, row = b'{"id":1}\n', {1: (1, None, None, None)}
    one = json_file("one", line, row)
    two = json_file("several members", b"", {**row, 2: (1, None, None, None)})
    packed = gzip.compress(line, mtime=0)
    record = b"A,1,x\n"
    return [
        one,
        one.packed(),
        json_file("marked", b"\xef\xbb\xbf" + line, row),
        json_file(
            "carriage returns",
            b'{"id":1}\r\r{"id":2}',
            {1: (1, None, None, None), 3: (2, None, None, None)},
        ),
        json_file("empty", b"", {}).unread("it contains no record"),
        json_file("blank", b"\n \r\n\t", {}).unread("it contains no record"),
        json_file("UTF-16 with its mark", '{"id":1}'.encode("utf-16"), {}).unread(
            "byte order mark of UTF-16"
        ),
        two.packed(packed + packed),
        json_file("padded", b"", row).packed(packed + b"\0" * 20),
        json_file("damaged", b"", {})
        .unread("gzip is damaged")
        .packed(packed[:-5] + b"\0" + packed[-4:]),
        json_file("cut gzip", b"", {}).unread("gzip is damaged").packed(packed[:-1]),
        json_file("empty gzip", b"", {}).unread("it is empty").packed(b""),
        json_file("no gzip", b"", {}).unread("gzip is damaged").packed(line),
        json_file("more behind", b"", {}).unread("gzip is damaged").packed(packed + line),
        json_file("gzip under a text name", packed, row),
        json_file("zstd under a text name", pa.compress(line, "zstd", asbytes=True), row),
        json_file("cut gzip under a text name", packed[:-1], {}).unread("gzip is damaged"),
        json_file("packed twice", b"", {})
        .unread("the content of its gzip is gzip and not JSON")
        .packed(gzip.compress(packed, mtime=0)),
        json_file("bzip2", bz2.compress(line * 999), {}).unread("its content is bzip2"),
        csv_file("parquet", _parquet([{"id": 1}]), {}).unread("its content is Parquet and not CSV"),
        csv_file("avro", _avro([{"id": 1}]), {}).unread("its content is Avro and not CSV"),
        replace(json_file("x", packed, row), name="CAPITALS.JSONL.GZ"),
        replace(csv_file("x", HEADER + b"\nA,1,x\n", {2: ("A", 1, "x")}), name="CAPITALS.CSV"),
        json_file("10:30 [a] {b}*? 100%+\u00fc\\", line, row),
        csv_file("marked", b"\xef\xbb\xbf" + HEADER + b"\r\n" + record, {2: ("A", 1, "x")}),
        csv_file("quoted header", b'"code" ,n, name\n' + record, {2: ("A", 1, "x")}),
        csv_file("header alone", HEADER, {}).unread("it contains no record"),
        csv_file("no header", record, {}).unread("its header is 'A,1,x'"),
        csv_file("another order", b"code,name,n\n" + record, {}).unread("its header is"),
        csv_file("empty", b"", {}).unread("it has no header"),
        csv_file("open quote", HEADER + b'\nA,1,x\nB,2,"y\nC,3,z\n', {}).unread(
            "the record that begins in line 3 is unknown"
        ),
        csv_file("single quote inside", HEADER + b'\nA,1,x\nB,2,"y"z\nC,3,z\n', {}).unread(
            "the record that begins in line 3 is unknown"
        ),
        csv_file("open quote closed by another", HEADER + b'\nA,1,x\nB,2,"y\nC,3,"z"\n', {}).unread(
            "the record that begins in line 3 is unknown"
        ),
    ]


def _of_rows() -> list[Landed]:
    rows: list[dict[str, object]] = [
        {"id": 1, "state": "x"},
        {"id": None, "state": "y"},
        {"id": 3, "state": None},
    ]
    loaded, bomb = {1: (1, "x"), 3: (3, None)}, [{"id": 1, "state": "x" * 10_000}] * 300
    files: list[Landed] = []
    for format, write in {"parquet": _parquet, "avro": _avro}.items():
        whole, unpacked = write(rows), "it unpacks to more than 1000000 bytes"
        files += [
            rows_file(format, "good", whole, loaded, 2),
            rows_file(format, "empty", write(rows[:0]), {}).unread("it contains no record"),
            rows_file(format, "cut", whole[:-20], {}).unread(
                f"the file cannot be read to its end as {format} ("
            ),
            rows_file(format, "another format", b'{"id":1}', {}).unread(
                f"the file cannot be read to its end as {format} ("
            ),
            rows_file(format, "bomb", write(bomb), {}).unread(unpacked),
            rows_file(format, "bomb in parts", write(bomb, "snappy"), {}).unread(unpacked),
        ]
    by_differences = _parquet(
        bomb, use_dictionary=False, column_encoding={"state": "DELTA_BYTE_ARRAY"}
    )
    return [
        *files,
        rows_file("parquet", "bomb of differences", by_differences, {}).unread(
            "it unpacks to more than"
        ),
    ]


def _parquet(rows: Sequence[Mapping[str, object]], codec: str = "zstd", **options: Any) -> bytes:
    file, schema = BytesIO(), pa.schema([("id", pa.int64()), ("state", pa.string())])
    pq.write_table(pa.Table.from_pylist([*rows], schema), file, compression=codec, **options)
    return file.getvalue()


def _avro(rows: Sequence[Mapping[str, object]], codec: str = "deflate") -> bytes:
    file = BytesIO()
    fields = [
        {"name": "id", "type": ["null", "long"]},
        {"name": "state", "type": ["null", "string"]},
    ]
    fastavro.writer(file, {"type": "record", "name": "row", "fields": fields}, rows, codec=codec)
    return file.getvalue()
