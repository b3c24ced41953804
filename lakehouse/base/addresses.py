"""Addresses that people type: folders of this machine and `s3://bucket/folder`."""

import posixpath
import re

from lakehouse.base.errors import Refused

_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?P<rest>.*)", re.DOTALL)
_S3_SCHEMES = ("s3", "s3a", "s3n")
# Characters of Hadoop's globs, and unprintable characters.
_UNSAFE = re.compile(r"[*?\[\]{}\\\x00-\x1f\x7f\ud800-\udfff]")
# An unsafe character, or the first dot of a path component `.` or `..`.
_REFUSED_CHARACTER = re.compile(_UNSAFE.pattern + r"|(?<=/)\.(?=\.?(?:/|$))")
# Source: Amazon S3 user guide, "General purpose bucket naming rules"
_BUCKET = re.compile(r"(?=.{3,63}$)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_IP_ADDRESS = re.compile(r"[0-9]+(\.[0-9]+){3}")
# Matches a user before an @, as in http://user:password@host, or a query with a =, which may be a
# signature. An @ in the path matches, too. An @ after a semicolon does not match: it belongs to a
# parameter of an sc:// address.
_CREDENTIALS = re.compile(r"://[^;?]*@|://\S*\?\S*=")


def holds_credentials(address: str) -> bool:
    """Whether an address may contain a user, a password or a signed query."""
    return _CREDENTIALS.search(address) is not None


def is_bucket(name: str) -> bool:
    """Whether the name is valid for a bucket."""
    return bool(_BUCKET.fullmatch(name)) and not _IP_ADDRESS.fullmatch(name)


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
            f"the address begins with {scheme}:, which is not supported. Use a folder,"
            " file:///folder or s3://bucket/folder."
        )
    bucket, _, key = rest.lstrip("/").rstrip("/").partition("/")
    has_signed_query = "=" in rest.partition("?")[2]
    has_user = "@" in rest and not is_bucket(bucket)
    if scheme != "file" and (has_signed_query or has_user):
        raise Refused(
            "the address holds a user, a password or a signed query. Use an address"
            " without credentials; boto3 finds them itself."
        )
    unsafe = _UNSAFE.search(text)
    if not text or unsafe:
        near = f" Did you mean {_UNSAFE.sub('', text)!r}?" if text else ""
        problem = f"holds {unsafe.group()!r}" if unsafe else "is empty"
        raise Refused(
            f"the address {problem}: {text!r}. Use a folder, file:///folder or"
            f" s3://bucket/folder.{near}"
        )
    if scheme == "file":
        return _folder(f"/{rest.lstrip('/')}" if match else text, base=base)
    key_parts = key.split("/") if key else []
    if not is_bucket(bucket) or not {"", ".", ".."}.isdisjoint(key_parts):
        near = "/".join([part for part in rest.split("/") if part not in ("", ".", "..")])
        raise Refused(
            f"the address is {text!r}, which is not a folder of a bucket. Did you mean"
            f" s3://{near.lower()}?"
        )
    return f"s3://{bucket}/{key}".rstrip("/")


def _folder(text: str, *, base: str) -> str:
    """The absolute folder of a path."""
    if text.startswith("~"):
        raise Refused(
            f"the address is {text!r}, but ~ is not expanded. Use the full path, like"
            f" $HOME{text[1:]}."
        )
    path = posixpath.normpath(text if text.startswith("/") else f"{base}/{text}")
    if not path.strip("/"):
        raise Refused("the address is '/'. Use a folder below it, like /data/orders.")
    return f"/{path.lstrip('/')}"


def quoted_address(address: str) -> str:
    """The address with its forbidden characters percent-encoded."""
    return _REFUSED_CHARACTER.sub(
        lambda character: f"%{ord(character[0]):02X}",
        address.encode("utf-8", "backslashreplace").decode(),
    )
