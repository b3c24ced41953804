"""Files drawn from a grammar of JSON lines and CSV: good records, bad ones, blank lines, and damage to the file as a whole.

Who draws a record knows what it is, so that nothing here parses what was drawn.
"""

import gzip
import json
from collections.abc import Callable
from random import Random

from lakehouse_tests.bad_input.corpus import CSV_LINES, JSON_LINES
from lakehouse_tests.bad_input.landed import HEADER, Landed, csv_file, json_file

_PLAIN = (
    "",
    "x",
    "new",
    "a b",
    "ü€\U0001f600",
    "'",
    "#",
    "{}",
    "[1]",
    "null",
    "\\",
    "\\n",
    "\u2028",
    "0",
)
_TEXTS = (*_PLAIN, 'say "hi"', "a,b", "a\nb", "a\r\nb", "\t")
_BREAKS = (b"\n", b"\r\n", b"\r")

# At the start of a file these are no bad lines.
_NOT_FIRST = ("a mark in the middle", "no object")
_JSON_LINES = [line for name, line in JSON_LINES.items() if name not in _NOT_FIRST]

type_of_record = tuple[bytes, tuple[object, ...] | None]


def draw(random: Random, number: int) -> Landed:
    """A file whose name holds `number`."""
    is_json = random.random() < 0.5
    make: Callable[[Random], type_of_record] = _json_record if is_json else _csv_record
    line_break = random.choice(_BREAKS)
    content, line = (b"", 1) if is_json else (HEADER + line_break, 2)
    rows: dict[int, tuple[object, ...]] = {}
    bad: list[int] = []
    count = random.randrange(1, 12)
    for place in range(count):
        if random.random() < 0.1:
            content, line = content + random.choice((b"", b"  ", b"\t")) + line_break, line + 1
        record, row = make(random)
        if row is None:
            bad.append(line)
        else:
            rows[line] = row
        content += record + (line_break if place + 1 < count or random.random() < 0.5 else b"")
        line += _line_breaks(record) + 1
    why = ""
    if not is_json and random.random() < 0.1:
        content = (
            content.removesuffix(line_break)
            + line_break
            + random.choice((b'A,1,"open', b'A,1,"x"y', b'"A"A,1,x\r\nB,2,z'))
        )
        why = f"the record that begins in line {1 + _line_breaks(content) - (1 if content.endswith(b'z') else 0)} is unknown"
    if random.random() < 0.1:
        content = b"\xef\xbb\xbf" + content
    file = (json_file if is_json else csv_file)(f"{number}", content, rows, *bad)
    file = file.unread(why) if why else file
    return _damaged(random, file) if random.random() < 0.5 else file


def _damaged(random: Random, file: Landed) -> Landed:
    """The file as gzip, of one member or two, whole or damaged."""
    cut = random.randrange(len(file.data) + 1)
    packed = (
        gzip.compress(file.data[:cut]) + gzip.compress(file.data[cut:])
        if random.random() < 0.3
        else gzip.compress(file.data)
    )
    place = len(packed) - random.randrange(1, 9)
    flipped = (
        packed[:place] + bytes([packed[place] ^ 1 << random.randrange(8)]) + packed[place + 1 :]
    )
    damaged = [packed[: -random.randrange(1, min(20, len(packed)))], flipped, packed + b"x"]
    kind = random.randrange(8)
    return (
        file.unread("gzip is damaged").packed(damaged[kind])
        if kind < len(damaged)
        else file.packed(packed)
    )


def _json_record(random: Random) -> type_of_record:
    if random.random() < 0.3:
        return random.choice(_JSON_LINES)
    content: dict[str, object] = {
        "id": random.choice((0, 1, -1, 2**63 - 1, random.randrange(10**9)))
    }
    if random.random() < 0.7:
        content["state"] = random.choice((None, *_TEXTS))
    if random.random() < 0.3:
        content["x"] = random.choice((0.5, -1e300, 7, None))
    if random.random() < 0.3:
        content[random.choice(("unknown", "ü", 'a"b', ""))] = random.choice(
            (1, [1, {"id": 2}], {"id": [3]}, "}", '{"')
        )
    keys = random.sample([*content], len(content))
    separators = random.choice(((",", ":"), (", ", ": "), (" ,\t", " : ")))
    text = json.dumps(
        {key: content[key] for key in keys},
        ensure_ascii=random.random() < 0.5,
        separators=separators,
    )
    x = content.get("x")
    return text.encode(), (
        content["id"],
        None,
        content.get("state"),
        float(x) if isinstance(x, int | float) else None,
    )


def _csv_record(random: Random) -> type_of_record:
    if random.random() < 0.3:
        return random.choice([*CSV_LINES.values()])
    code, name = random.choice([text for text in _TEXTS if text]), random.choice((*_TEXTS, "NA"))
    number = random.choice(("", "NA", "0", "-7", "2147483647"))
    fields = [_csv_field(random, text) for text in (code, number, name)]
    # Nothing is a missing value, nothing in quotes is an empty text, which is no number.
    row = (
        code,
        int(number) if number not in ("", "NA") else None,
        None if name == "NA" or not fields[2] else name,
    )
    return ",".join(fields).encode(), None if fields[1].startswith('""') else row


def _csv_field(random: Random, text: str) -> str:
    if random.random() < 0.3 or any(sign in text for sign in '",\r\n'):
        return '"' + text.replace('"', '""') + '"' + random.choice(("", "", " "))
    return text


def _line_breaks(content: bytes) -> int:
    return content.replace(b"\r\n", b"\n").replace(b"\r", b"\n").count(b"\n")
