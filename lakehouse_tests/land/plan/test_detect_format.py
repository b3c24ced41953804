"""A binary file under the name of a text file is one refusal that names its format, and text is never taken for one."""

import bz2
import gzip
import lzma
import zipfile
from collections.abc import Callable
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse import Landing
from lakehouse.land.plan.file_text import GZIP, detect_format, read_records
from lakehouse.land.plan.records import Unreadable

JSON = Landing(prefix="landing/x/", format="json", schema="id BIGINT")
CSV = Landing(prefix="landing/x/", format="csv", schema="id BIGINT")
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
def test_a_binary_file_gives_no_line_and_is_called_by_its_format(
    name: str, landing: Landing
) -> None:
    data = BINARY[name](LINES)
    format = landing.format.upper()
    for content, compression, found in (
        (data, None, "its content"),
        (gzip.compress(data), GZIP, "the content of its gzip"),
    ):
        with pytest.raises(Unreadable, match=f"{found} is {name} and not {format}; land it again"):
            [*read_records(content, landing, compression=compression, max_content_bytes=10**6)]


@pytest.mark.parametrize("name", ["bzip2", "zip"])
def test_an_empty_archive_is_known_as_well(name: str) -> None:
    assert (
        detect_format(bz2.compress(b"") if name == "bzip2" else b"PK\x05\x06" + bytes(18)) == name
    )


@given(name=st.sampled_from(["BZh9", "PK", "PAR1", "Obj", "ORC", "ORC_ID", "7z"]), rest=st.text())
@pytest.mark.parametrize("delimiter", [",", "\t", "\x01"])
def test_a_csv_header_may_begin_with_the_letters_of_a_signature(
    name: str, rest: str, delimiter: str
) -> None:
    printable = "".join(sign for sign in rest if sign.isprintable())
    assert detect_format(f"{name}{delimiter}{printable}\n".encode()) is None


@given(
    st.dictionaries(st.text(), st.integers()).map(str) | st.text(st.characters(categories=["L"]))
)
def test_text_is_no_binary_format(text: str) -> None:
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        assert detect_format(text.encode(encoding)) is None
