"""Declares tables that other programs write, and parses the table addresses that people type."""

import posixpath
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from lakehouse.base.errors import Refused
from lakehouse.base.paths import name_below
from lakehouse.base.settings import is_bucket
from lakehouse.base.text import either

_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?P<rest>.*)", re.DOTALL)
_S3_SCHEMES = ("s3", "s3a", "s3n")
# Characters of Hadoop's globs, and unprintable characters.
_UNSAFE = re.compile(r"[*?\[\]{}\\\x00-\x1f\x7f\ud800-\udfff]")
# An unsafe character, or the first dot of a path component `.` or `..`.
_REFUSED_CHARACTER = re.compile(_UNSAFE.pattern + r"|(?<=/)\.(?=\.?(?:/|$))")
_NOT_IN_NAMES = re.compile(r"[^a-z0-9_]+")
_LAYERS = ("bronze", "silver", "gold")
Orphans = Literal["keep", "delete"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """A table that other programs write and this lake maintains.

    - `uri`: an absolute folder, or `s3://bucket/folder`.
    - `orphans`: with `keep`, a vacuum keeps files that the log never named, because they may belong
      to other programs.
    - `asset_key` and `pool`: the key and the pool of the asset that writes the table, if that asset
      belongs to the same Dagster project.
    """

    uri: str
    orphans: Orphans = "keep"
    asset_key: tuple[str, ...] = ()
    pool: str = ""

    def __post_init__(self) -> None:
        if self.orphans not in get_args(Orphans):
            words = either([repr(word) for word in get_args(Orphans)])
            raise Refused(f"Adopted.orphans is {self.orphans!r}. Use {words}.")
        address = parse_address(self.uri, base="/")
        if address != self.uri:
            is_absolute = self.uri.startswith("/") or ":" in self.uri
            expected = repr(address) if is_absolute else "an absolute folder, or s3://bucket/folder"
            raise Refused(f"Adopted.uri is {self.uri!r}. Use {expected}.")

    @property
    def on_s3(self) -> bool:
        """Whether the table is on S3."""
        return self.uri.startswith("s3://")


def is_address(word: str) -> bool:
    """Whether `word` is an address, and not a table's key like `silver/orders`."""
    return word.startswith(("/", ".", "~")) or ":" in word


def parse_address(text: str, *, base: str) -> str:
    """The normalised address: `s3://bucket/folder`, or an absolute folder.

    Relative folders are resolved against `base`.

    Raises:
        Refused: the text is not such an address, or it contains credentials or characters that
            Hadoop interprets.
    """
    match = _SCHEME.fullmatch(text)
    scheme = match["scheme"].lower() if match else "file"
    rest = match["rest"] if match else text
    if scheme not in ("file", *_S3_SCHEMES):
        # The message omits the rest of the text, which may contain a secret key.
        raise Refused(
            f"the address of a table begins with {scheme}:, which is not supported. Use a folder,"
            " file:///folder or s3://bucket/folder."
        )
    bucket, _, key = rest.lstrip("/").rstrip("/").partition("/")
    has_signed_query = "=" in rest.partition("?")[2]
    has_user = "@" in rest and not is_bucket(bucket)
    if scheme != "file" and (has_signed_query or has_user):
        raise Refused(
            "the address of a table holds a user, a password or a signed query. Use an address"
            " without credentials; boto3 finds them itself."
        )
    unsafe = _UNSAFE.search(text)
    if not text or unsafe:
        near = f" Did you mean {_UNSAFE.sub('', text)!r}?" if text else ""
        problem = f"holds {unsafe.group()!r}" if unsafe else "is empty"
        raise Refused(
            f"the address of a table {problem}: {text!r}. Use a folder, file:///folder or"
            f" s3://bucket/folder.{near}"
        )
    if scheme == "file":
        path = f"/{rest.lstrip('/')}" if match else text
        return _folder(path, base=base)
    key_parts = key.split("/") if key else []
    if not is_bucket(bucket) or not {"", ".", ".."}.isdisjoint(key_parts):
        near = "/".join([part for part in rest.split("/") if part not in ("", ".", "..")])
        raise Refused(
            f"the address of a table is {text!r}, which is not a folder of a bucket. Did you mean"
            f" s3://{near.lower()}?"
        )
    return f"s3://{bucket}/{key}".rstrip("/")


def quoted_address(address: str) -> str:
    """The address with its forbidden characters percent-encoded."""
    return _REFUSED_CHARACTER.sub(
        lambda character: f"%{ord(character[0]):02X}",
        address.encode("utf-8", "backslashreplace").decode(),
    )


def key_of(address: str, taken: Collection[str]) -> str:
    """A key `layer/name` that is derived from the address and not yet `taken`.

    The layer is the innermost folder above the table whose name is a layer, or silver if there is
    none. The name is the table's folder. If that key is taken, up to two parent folders are
    prefixed. If all these keys are taken, a number is appended to the first one.
    """
    parts = [part for part in address.removeprefix("s3://").split("/") if part]
    layer = next((part for part in reversed(parts[:-1]) if part in _LAYERS), "silver")
    names = [_name(part) for part in reversed(parts)]
    for count in range(1, min(len(names), 3) + 1):
        joined = "_".join(reversed(names[:count]))
        key = f"{layer}/{_name(joined[-98:])}"
        if key not in taken:
            return key
    first = f"{layer}/{names[0][:90]}" if names else f"{layer}/table"
    number = 2
    while f"{first}_{number}" in taken:
        number += 1
    return f"{first}_{number}"


def is_inside(address: str, other: str) -> bool:
    """Whether the address is below the other one."""
    return name_below(address, other) is not None


def folders_above(address: str) -> Iterator[str]:
    """The parent folders of an address, innermost first; the bucket is included, `/` is not."""
    parent = address.rpartition("/")[0]
    while parent not in ("", "s3:/"):
        yield parent
        parent = parent.rpartition("/")[0]


def _folder(text: str, *, base: str) -> str:
    if text.startswith("~"):
        raise Refused(
            f"the address of a table is {text!r}, but ~ is not expanded. Use the full path, like"
            f" $HOME{text[1:]}."
        )
    path = posixpath.normpath(text if text.startswith("/") else f"{base}/{text}")
    if path.lstrip("/") == "":
        raise Refused(
            "the address of a table is '/'. Use the folder of one table, like /data/orders."
        )
    return f"/{path.lstrip('/')}"


def _name(part: str) -> str:
    name = _NOT_IN_NAMES.sub("_", part.lower()).strip("_") or "table"
    return name if name[0].isalpha() else f"t_{name}"
