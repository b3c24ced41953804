"""Addresses of tables: one spelling for each, and a key that is free."""

import pytest

from lakehouse.base.errors import Refused
from lakehouse.base.paths import is_address, parse_address, quoted_address
from lakehouse.declare.table import key_of

SPELLED = {
    "/data/orders": "/data/orders",
    "/data//sales/../orders/": "/data/orders",
    "./orders": "/here/orders",
    "../orders": "/orders",
    "file:///data/orders": "/data/orders",
    "file:/data/my orders": "/data/my orders",
    "file:///data/a@b": "/data/a@b",
    "file://data/a@b": "/data/a@b",
    "s3://bucket/a@b/orders": "s3://bucket/a@b/orders",
    "s3:/bucket/orders": "s3://bucket/orders",
    "s3://bucket/a/orders/": "s3://bucket/a/orders",
    "s3a://bucket/a/d=1/Orders": "s3://bucket/a/d=1/Orders",
    "s3n://bucket": "s3://bucket",
}
REFUSED = {
    "": "is empty",
    "/": "Use a folder below it",
    "~/orders": r"\$HOME/orders",
    "gs://bucket/orders": "begins with gs:, which is not supported. Use a folder, file:///folder or s3://",
    "abfss://files@account/orders": "begins with abfss:, which is not supported. Use a folder",
    "dbfs:/orders": "begins with dbfs:, which is not supported. Use a folder",
    "s3://Bucket/orders": "Did you mean s3://bucket/orders",
    "s3://bucket//orders": "Did you mean s3://bucket/orders",
    "s3://bucket/a/../orders": "is not a folder of a bucket",
    "/data/*": "Did you mean '/data/'",
    "s3://bucket/what?": r"holds '\?'",
    "/data/a\nb": r"holds '\\n'",
}


@pytest.mark.parametrize(("text", "address"), SPELLED.items())
def test_an_address_is_kept_in_one_spelling(text: str, address: str) -> None:
    assert parse_address(text, base="/here") == address
    assert parse_address(address, base="/elsewhere") == address


@pytest.mark.parametrize(("text", "said"), REFUSED.items())
def test_what_is_no_address_is_refused_with_what_would_be_one(text: str, said: str) -> None:
    with pytest.raises(Refused, match=said):
        parse_address(text, base="/here")


@pytest.mark.parametrize(
    "text",
    [
        "s3://key:hush@bucket/orders",
        "s3://key:hu/hush@bucket/orders",
        "s3://bucket/orders?X-Amz-Signature=hush",
        "https://bucket.s3.amazonaws.com/orders?X-Amz-Signature=hush",
    ],
)
def test_credentials_in_an_address_are_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(Refused) as refused:
        parse_address(text, base="/here")
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    "text",
    ["/data/[a]*", "/data/a\nb", "/data/\udcff", "s3://bucket/../a@b/./t", "/data/d=1/orders"],
)
def test_what_is_no_address_is_shown_as_one(text: str) -> None:
    shown = quoted_address(text)
    assert parse_address(shown, base="/") == shown and (shown == text) == ("=" in text)


def test_a_key_is_told_from_an_address() -> None:
    words = ["silver/orders", "orders", "./orders", "/orders", "file:/a", "s3:/b/a", "dbfs:/a"]
    assert [word for word in words if not is_address(word)] == ["silver/orders", "orders"]


KEYS = {
    "s3://warehouse/sales/orders": "silver/orders",
    "/data/gold/sales/Orders 2026": "gold/orders_2026",
    "/data/2026": "silver/t_2026",
    f"/data/a{'1' * 200}": f"silver/t_{'1' * 98}",
    "/data/…": "silver/table",
}


@pytest.mark.parametrize(("address", "key"), KEYS.items())
def test_a_key_says_where_the_table_lies(address: str, key: str) -> None:
    assert key_of(address, ()) == key


def test_a_key_that_is_taken_gets_the_folders_above() -> None:
    taken = {"silver/orders"}
    assert key_of("/data/sales/orders", taken) == "silver/sales_orders"
    taken |= {"silver/sales_orders", "silver/data_sales_orders"}
    with pytest.raises(Refused, match="no key is free for /data/sales/orders"):
        key_of("/data/sales/orders", taken)
