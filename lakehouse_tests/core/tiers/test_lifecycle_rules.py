"""Which lifecycle rules do harm to a table, and what the check says of them."""

from dataclasses import replace
from typing import Any

import pytest

from lakehouse.core.tiers.lifecycle_check import OpenUpload, assess_lifecycle
from lakehouse.core.tiers.lifecycle_rules import (
    TIER_TAG,
    Lifecycle,
    LiveObjects,
    harms_of,
    parse_lifecycle,
    tier_rule,
)

NOW, DAY = 1_795_000_000_000, 86_400_000
KIB = 1024
LIVE = LiveObjects(
    table="bronze/orders",
    folder="lake/bronze/orders/",
    sizes={"day=1/a": 100, "day=1/b": 200 * KIB, "day=2/c": 500 * KIB, "v.bin": None},
)
GLACIER = [{"Days": 90, "StorageClass": "GLACIER"}]
EXPIRES = {"Expiration": {"Days": 365}}


def configured(*rules: dict[str, Any], minimum: str = "") -> Lifecycle:
    enabled = [{"ID": f"r{number}", "Status": "Enabled"} for number in range(len(rules))]
    documents = [first | second for first, second in zip(enabled, rules, strict=True)]
    return parse_lifecycle(
        {"Rules": documents, "TransitionDefaultMinimumObjectSize": minimum}
        if minimum
        else {"Rules": documents}
    )


def harm(rule: dict[str, Any], live: LiveObjects = LIVE, minimum: str = "") -> tuple[str, bool]:
    """The matching live files, and whether the log is touched."""
    found = harms_of(configured(rule, minimum=minimum), live)
    return (
        " ".join(name for each in found for name in each.names),
        any(each.touches_log for each in found),
    )


ALL = "day=1/a day=1/b day=2/c v.bin"


@pytest.mark.parametrize(
    ("rule", "names", "log"),
    {
        "the whole bucket": (EXPIRES | {"Filter": {}}, ALL, True),
        "no filter at all": (EXPIRES, ALL, True),
        "an old rule's prefix": (EXPIRES | {"Prefix": "lake/bronze"}, ALL, True),
        "the table": (EXPIRES | {"Filter": {"Prefix": "lake/bronze/orders/"}}, ALL, True),
        "a partition": (
            EXPIRES | {"Filter": {"Prefix": "lake/bronze/orders/day=1/"}},
            "day=1/a day=1/b",
            False,
        ),
        "its log": (EXPIRES | {"Filter": {"Prefix": "lake/bronze/orders/_delta_log/"}}, "", True),
        "another table": (EXPIRES | {"Filter": {"Prefix": "lake/bronze/orders2"}}, "", False),
        "landed files": (EXPIRES | {"Filter": {"Prefix": "lake/landing/"}}, "", False),
        "large ones": (
            EXPIRES | {"Filter": {"ObjectSizeGreaterThan": 200 * KIB}},
            "day=2/c v.bin",
            True,
        ),
        "small ones": (
            EXPIRES | {"Filter": {"ObjectSizeLessThan": 200 * KIB}},
            "day=1/a v.bin",
            True,
        ),
        "and": (
            EXPIRES
            | {
                "Filter": {
                    "And": {
                        "Prefix": "lake/bronze/orders/day",
                        "ObjectSizeGreaterThan": 0,
                        "ObjectSizeLessThan": 101,
                    }
                }
            },
            "day=1/a",
            False,
        ),
        "on a date": ({"Expiration": {"Date": "2027-01-01"}}, ALL, True),
        "markers only": ({"Expiration": {"ExpiredObjectDeleteMarker": True}}, "", False),
        "old versions": ({"NoncurrentVersionExpiration": {"NoncurrentDays": 1}}, "", False),
        "uploads": ({"AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 7}}, "", False),
        "to glacier": ({"Transitions": GLACIER}, ALL, True),
        "to a class that is read at once": (
            {"Transitions": [{"Days": 30, "StorageClass": "STANDARD_IA"}]},
            "",
            False,
        ),
        "switched off": (EXPIRES | {"Status": "Disabled"}, "", False),
        "by a foreign tag": (EXPIRES | {"Filter": {"Tag": {"Key": "a", "Value": "b"}}}, "", False),
    }.values(),
)
def test_a_rule_that_deletes_or_archives_live_files_or_the_log_is_found(
    rule: dict[str, Any], names: str, log: bool
) -> None:
    assert harm(rule) == (names, log)


@pytest.mark.parametrize(
    ("minimum", "condition", "names"),
    [
        ("all_storage_classes_128K", {}, "day=1/b day=2/c v.bin"),
        ("varies_by_storage_class", {}, ALL),
        ("", {}, ALL),
        ("all_storage_classes_128K", {"ObjectSizeGreaterThan": 1}, ALL),
    ],
)
def test_small_files_move_only_where_the_bucket_s_minimum_or_the_rule_s_own_size_lets_them(
    minimum: str, condition: dict[str, Any], names: str
) -> None:
    assert harm({"Transitions": GLACIER, "Filter": condition}, minimum=minimum)[0] == names


def test_a_rule_that_deletes_the_archive_of_a_table_is_found_and_one_that_moves_it_is_not() -> None:
    live = replace(LIVE, archive="lake/archive/bronze/orders/")
    deletes, moves = (
        configured(rule | {"Filter": {"Prefix": "lake/archive/"}})
        for rule in (EXPIRES, {"Transitions": GLACIER})
    )
    result = assess_lifecycle(deletes, live, [], now_ms=NOW)
    assert (result.is_error, harms_of(deletes, LIVE), harms_of(moves, live)) == (True, [], [])
    assert result.sentence == (
        "rule 'r0' (prefix 'lake/archive/') deletes the archive of bronze/orders after 365 days. "
        "Use a prefix or a tag that excludes lake/archive/bronze/orders/, or disable the rule"
    )


def test_a_rule_on_our_tag_does_harm_only_to_live_files_that_carry_it() -> None:
    lifecycle = Lifecycle(documents=(tier_rule("lake/", "GLACIER"),))
    assert harms_of(lifecycle, LIVE) == []
    tagged = LiveObjects(
        table=LIVE.table,
        folder=LIVE.folder,
        sizes=LIVE.sizes,
        tagged={"day=1/b": "GLACIER", "day=2/c": "STANDARD_IA"},
    )
    (found,) = harms_of(lifecycle, tagged)
    assert (found.names, found.touches_log) == (("day=1/b",), False)
    result = assess_lifecycle(lifecycle, tagged, [], now_ms=NOW)
    assert (result.ok, result.is_error, result.numbers["tagged_live_files"]) == (False, True, 2)
    assert "`lakehouse tiers apply bronze/orders`, which removes the tag" in result.sentence


def test_the_check_names_rule_prefix_table_and_the_way_out() -> None:
    rule = EXPIRES | {"ID": "tidy", "Filter": {"Prefix": "lake/bronze/"}}
    result = assess_lifecycle(configured(rule), LIVE, [], now_ms=NOW)
    assert (result.ok, result.is_error) == (False, True)
    assert result.sentence == (
        "rule 'tidy' (prefix 'lake/bronze/') deletes 4 of 4 live files of bronze/orders (700 KiB, "
        "for example day=1/a) and the log of bronze/orders after 365 days. Use a prefix or a tag that "
        "excludes lake/bronze/orders/, or disable the rule"
    )


@pytest.mark.parametrize(
    ("days_old", "rule", "passes"),
    [(2, {}, False), (0.5, {}, True), (2, {"Filter": {"Prefix": "lake/"}}, True)],
)
def test_uploads_that_never_ended_are_counted_with_bytes_unless_a_rule_ends_them(
    days_old: float, rule: dict[str, Any], passes: bool
) -> None:
    begun = NOW - round(days_old * DAY)
    uploads = [OpenUpload(key=f"u{size}", started_ms=begun, size_bytes=size) for size in (5, None)]
    abort = {"AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 7}}
    lifecycle = configured(rule | abort) if rule else configured()
    result = assess_lifecycle(lifecycle, LIVE, uploads, now_ms=NOW)
    assert (result.ok, result.is_error) == (passes, False)
    counted = (result.numbers["unfinished_uploads"], result.numbers["unfinished_bytes"])
    assert counted == ((2, 5) if days_old > 1 else (0, 0))
    assert ("no rule ends" in result.sentence) is not bool(rule)


def test_our_rule_replaces_itself_alone() -> None:
    foreign = {"ID": "tidy", "Status": "Enabled", "Prefix": "logs/", **EXPIRES}
    lifecycle = Lifecycle(documents=(foreign,), minimum_size="varies_by_storage_class")
    ours = tier_rule("lake/", "GLACIER_IR")
    twice = lifecycle.with_rule(ours).with_rule({**ours, "Status": "Disabled"})
    assert twice.documents == (foreign, {**ours, "Status": "Disabled"})
    assert twice.minimum_size == "varies_by_storage_class"
    tag = {"Key": TIER_TAG, "Value": "GLACIER_IR"}
    assert ours["Filter"] == {"And": {"Prefix": "lake/", "Tags": [tag]}}
    assert tier_rule("", "STANDARD_IA")["Transitions"][0]["Days"] == 30
