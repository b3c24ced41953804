"""Settings are read from a mapping, and a value that is not valid is refused with what to use."""

import re
from pathlib import Path

import pytest

from lakehouse.base.errors import Refused
from lakehouse.base.settings import ACCEPTED, Settings, parse_settings

BASE = Path("/base")


def parse(**environ: str) -> Settings:
    return parse_settings(environ, base=BASE)


def test_the_defaults() -> None:
    assert parse() == Settings(
        root="/base/.lakehouse/lake",
        home=Path("/base/.lakehouse"),
        dagster_home=Path("/base/.lakehouse/dagster"),
        spark="server",
        port=3000,
        spark_port=15002,
        spark_memory="2g",
        compaction_budget_usd=0.0,
        compaction_slots=1,
        metrics_port=9464,
        log_store="conditional",
        records_days=7,
        tables="lakehouse.tables",
        adopted=Path("/base/adopted.toml"),
        prices=Path("/base/prices.toml"),
        replay="on",
        replay_hours=12,
        replay_seconds=45,
    )


def test_an_empty_value_is_the_default() -> None:
    assert parse(**dict.fromkeys(ACCEPTED, "")) == parse()


def test_other_programs_variables_are_none_of_ours() -> None:
    assert parse(AWS_ENDPOINT_URL="http://127.0.0.1:9000", HOME="/home/x") == parse()


ROOTS = {
    "x": ("/base/x", "/base/x"),
    "../x": ("/x", "/x"),
    "/a//b/./c/../": ("/a/b", "/a/b"),
    "/a b/ä": ("/a b/ä", "/a b/ä"),
    "s3://bucket": ("s3://bucket", "s3a://bucket"),
    "s3://bucket/": ("s3://bucket", "s3a://bucket"),
    "s3a://bucket/p": ("s3://bucket/p", "s3a://bucket/p"),
    "s3:bucket": ("s3://bucket", "s3a://bucket"),
    "file:///x/y": ("/x/y", "/x/y"),
    "s3://my.bucket-1/a/b=1/c_d.e/": (
        "s3://my.bucket-1/a/b=1/c_d.e",
        "s3a://my.bucket-1/a/b=1/c_d.e",
    ),
}


@pytest.mark.parametrize(
    ("value", "root", "spark_root"), [(value, *wanted) for value, wanted in ROOTS.items()]
)
def test_a_root_has_one_spelling_for_spark_and_one_for_everyone_else(
    value: str, root: str, spark_root: str
) -> None:
    found = parse(LAKEHOUSE_ROOT=value)
    assert (found.root, found.spark_root) == (root, spark_root)
    assert found.table_uri("bronze/t") == f"{spark_root}/bronze/t"
    assert found.on_s3 is root.startswith("s3:")


def test_the_root_lies_in_the_home_unless_it_is_said() -> None:
    assert parse(LAKEHOUSE_HOME="other/").root == "/base/other/lake"


REFUSED_ROOTS = {
    "s3://Bucket_/x": "is not a folder of a bucket",
    "s3://bucket/a//b": r"Did you mean s3://bucket/a/b\?",
    "s3://bucket/../b": r"Did you mean s3://bucket/b\?",
    "s3://bucket/a?b": r"holds '\?'",
    "s3://bucket/a b": "Use a folder, or s3://bucket/prefix",
    "s3://bucket/ä": "Use a folder, or s3://bucket/prefix",
    "https://my-bucket.s3.eu-west-1.amazonaws.com/x/y": "begins with https:",
    "gs://bucket/x": "begins with gs:",
    "~/x": r"Use the full path, like \$HOME/x",
    "a[b]*": r"holds '\['",
    "/": "Use a folder below it",
    "s3://": "is not a folder of a bucket",
    "s3://ab": "is not a folder of a bucket",
    "s3://a..b/x": "is not a folder of a bucket",
    "s3://1.2.3.4/x": "is not a folder of a bucket",
    "s3://" + "a" * 64: "is not a folder of a bucket",
    "C:\\lake": "holds",
}


@pytest.mark.parametrize(("value", "why"), REFUSED_ROOTS.items())
def test_an_impossible_root_is_refused_with_its_name_and_what_to_use(value: str, why: str) -> None:
    with pytest.raises(Refused, match=f"^LAKEHOUSE_ROOT(: | is ).*{why}"):
        parse(LAKEHOUSE_ROOT=value)


ACCEPTED_VALUES = {
    "LAKEHOUSE_SPARK": [
        "local[1]",
        "local[*]",
        "spark://a:7077,b:7077",
        "sc://host:15002/;use_ssl=true",
    ],
    "LAKEHOUSE_PORT": ["1", "65535"],
    "LAKEHOUSE_SPARK_MEMORY": ["512m", "1g"],
    "LAKEHOUSE_COMPACTION_BUDGET_USD": ["0.25", "10"],
    "LAKEHOUSE_COMPACTION_SLOTS": ["2", "16"],
    "LAKEHOUSE_RECORDS_DAYS": ["1", "3650"],
    "LAKEHOUSE_TABLES": ["my.own_tables"],
    "LAKEHOUSE_ADOPTED": ["/etc/adopted.toml"],
    "LAKEHOUSE_PRICES": ["/etc/prices.toml"],
    "LAKEHOUSE_LOG_STORE": ["platform"],
    "LAKEHOUSE_REPLAY": ["off", "on"],
    "LAKEHOUSE_REPLAY_HOURS": ["744"],
    "LAKEHOUSE_REPLAY_SECONDS": ["5"],
}
REFUSED_VALUES = {
    "LAKEHOUSE_HOME": ["s3://bucket/home"],
    "LAKEHOUSE_SPARK": ["local", "local[0]", "Server", "spark://host", "sc://", "yarn"],
    "LAKEHOUSE_PORT": ["0", "65536", "-1", "3e3", "٣٠٠٠", "9" * 5_000],
    "LAKEHOUSE_SPARK_PORT": ["http"],
    "LAKEHOUSE_SPARK_MEMORY": ["511m", "2G", "2", "1.5g"],
    "LAKEHOUSE_COMPACTION_BUDGET_USD": ["-1", "1e9", "nan"],
    "LAKEHOUSE_COMPACTION_SLOTS": ["0", "17", "1.5"],
    "LAKEHOUSE_RECORDS_DAYS": ["0", "forever"],
    "LAKEHOUSE_TABLES": ["my-tables", "a..b"],
    "LAKEHOUSE_ADOPTED": ["s3://bucket/adopted.toml"],
    "LAKEHOUSE_PRICES": ["s3://bucket/prices.toml"],
    "LAKEHOUSE_LOG_STORE": ["own"],
    "LAKEHOUSE_REPLAY": ["yes", "dms"],
    "LAKEHOUSE_REPLAY_HOURS": ["745"],
    "LAKEHOUSE_REPLAY_SECONDS": ["4"],
}


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name, values in ACCEPTED_VALUES.items() for value in values],
)
def test_a_value_is_taken_and_handed_on_as_it_was_said(name: str, value: str) -> None:
    assert parse(**{name: value}).as_environ()[name] == value


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name, values in REFUSED_VALUES.items() for value in values],
)
def test_a_value_is_refused_with_its_name_and_what_is_accepted(name: str, value: str) -> None:
    message = f"^{name} is {re.escape(repr(value))}. Use {re.escape(ACCEPTED[name][1])}"
    with pytest.raises(Refused, match=message):
        parse(**{name: value})


@pytest.mark.parametrize(
    "secret",
    ["token=hush", ";TOKEN=hush", "/;session_id=hush", "/;token=hu sh", ";x=1;token =hush"],
)
def test_a_token_or_a_session_for_spark_is_refused_and_not_repeated(secret: str) -> None:
    message = r"^LAKEHOUSE_SPARK names a (token|session_id)\. Use "
    with pytest.raises(Refused, match=message) as refusal:
        parse(LAKEHOUSE_SPARK=f"sc://host{secret}")
    assert "hu" not in str(refusal.value).replace("AUTHENTICATE", "")


def test_a_header_for_spark_is_taken_and_never_repeated() -> None:
    assert parse(LAKEHOUSE_SPARK="sc://host/;x-api-key=hush").spark == "sc://host/;x-api-key=hush"
    with pytest.raises(Refused, match=r"^LAKEHOUSE_SPARK is 'sc//host/'\. Use ") as refusal:
        parse(LAKEHOUSE_SPARK="sc//host/;x-api-key=hush")
    assert "hush" not in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LAKEHOUSE_ROOT", "s3://me:hush@bucket/lake"),
        ("LAKEHOUSE_ROOT", "https://hush@minio:9000/bucket"),
        ("LAKEHOUSE_HOME", "file://me:hush@host/home"),
        ("LAKEHOUSE_SPARK", "sc://me:hush@cluster:15002"),
        ("LAKEHOUSE_SPARK", "spark://me:hush@cluster:7077"),
        ("AWS_ENDPOINT_URL", "http://me:hush@127.0.0.1:9000"),
        ("AWS_ENDPOINT_URL", "http://me:hu/sh@127.0.0.1:9000"),
        ("AWS_ENDPOINT_URL_S3", "https://minio:9000/?token=hush"),
    ],
)
def test_credentials_in_addresses_are_refused_and_not_repeated(name: str, value: str) -> None:
    message = rf"^{name} holds .*\. Use an address without credentials\. Put .* into "
    with pytest.raises(Refused, match=message) as refusal:
        parse(**{name: value})
    assert "hush" not in str(refusal.value) and "hu/sh" not in str(refusal.value)


def test_a_sign_that_users_have_in_addresses_may_stand_where_no_user_can() -> None:
    found = parse(LAKEHOUSE_ROOT="a@b/c", LAKEHOUSE_SPARK="sc://host/;user_id=me@example.com")
    assert (found.root, found.spark) == ("/base/a@b/c", "sc://host/;user_id=me@example.com")


def test_two_servers_cannot_share_a_port() -> None:
    message = r"LAKEHOUSE_SPARK_PORT and LAKEHOUSE_PORT are both 4000\. Use two different ports"
    with pytest.raises(Refused, match=message):
        parse(LAKEHOUSE_PORT="4000", LAKEHOUSE_SPARK_PORT="4000")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("LAKEHOUSE_ROT", "Did you mean LAKEHOUSE_ROOT or LAKEHOUSE_PORT?"),
        ("LAKEHOUSE_PROT", "Did you mean LAKEHOUSE_ROOT or LAKEHOUSE_PORT?"),
        ("LAKEHOUSE_TABELS", "Did you mean LAKEHOUSE_TABLES?"),
        ("LAKEHOUSE_X_Y_Z_Q", "Use one of LAKEHOUSE_ROOT,"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_known(name: str, hint: str) -> None:
    with pytest.raises(Refused, match=re.escape(hint)):
        parse(**{name: "x"})


@pytest.mark.parametrize("root", ["", "lake", "s3://bucket/p"])
def test_another_process_gets_the_same_settings_wherever_it_starts(root: str) -> None:
    found = parse(
        LAKEHOUSE_ROOT=root,
        LAKEHOUSE_HOME="h",
        LAKEHOUSE_PORT="4000",
        LAKEHOUSE_REPLAY="off",
        LAKEHOUSE_SPARK="local[2]",
    )
    assert set(found.as_environ()) == set(ACCEPTED)
    assert parse_settings(found.as_environ(), base=Path("/elsewhere")) == found
