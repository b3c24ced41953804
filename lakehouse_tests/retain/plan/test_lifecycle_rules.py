"""Which lifecycle rules do harm to a table, and what the check says of them."""

import re
from dataclasses import replace
from typing import Any

import pytest

from lakehouse.base.stored_objects import LifecycleRule, parse_rules
from lakehouse.retain.plan.tiers import LiveObjects, assess_lifecycle, tier_rule

KIB = 1024
LIVE = LiveObjects(
    table="bronze/orders",
    folder="lake/bronze/orders/",
    names={"day=1/a", "day=1/b", "day=2/c", "v.bin"},
)
GLACIER = [{"Days": 90, "StorageClass": "GLACIER"}]
EXPIRES = {"Expiration": {"Days": 365}}


def configured(*rules: dict[str, Any]) -> tuple[LifecycleRule, ...]:
    enabled = [{"ID": f"r{number}", "Status": "Enabled"} for number in range(len(rules))]
    return parse_rules({"Rules": [a | b for a, b in zip(enabled, rules, strict=True)]})


def harm(rule: dict[str, Any]) -> tuple[str, bool]:
    """The matching live files, and whether the log is touched, according to the check."""
    result = assess_lifecycle(configured(rule), LIVE)
    touches_log = "the log of" in result.sentence
    found = re.search(r"(\d) of 4 live files .*? \(for example (.*?)\)", result.sentence)
    assert result.is_error == (touches_log or found is not None)
    return ("" if found is None else f"{found[1]} {found[2]}"), touches_log


ALL = "4 day=1/a"


def expiring(**filter_: Any) -> dict[str, Any]:
    return EXPIRES | {"Filter": filter_}


DAYS_BELOW_101 = {
    "Prefix": "lake/bronze/orders/day",
    "ObjectSizeGreaterThan": 0,
    "ObjectSizeLessThan": 101,
}
TO_IA = {"Transitions": [{"Days": 30, "StorageClass": "STANDARD_IA"}]}
RULES = {
    "the whole bucket": (expiring(), ALL, True),
    "no filter at all": (EXPIRES, ALL, True),
    "an old rule's prefix": (EXPIRES | {"Prefix": "lake/bronze"}, ALL, True),
    "the table": (expiring(Prefix="lake/bronze/orders/"), ALL, True),
    "a partition": (expiring(Prefix="lake/bronze/orders/day=1/"), "2 day=1/a", False),
    "its log": (expiring(Prefix="lake/bronze/orders/_delta_log/"), "", True),
    "another table": (expiring(Prefix="lake/bronze/orders2"), "", False),
    "landed files": (expiring(Prefix="lake/landing/"), "", False),
    "by size, which counts as all": (expiring(ObjectSizeGreaterThan=200 * KIB), ALL, True),
    "and": (expiring(And=DAYS_BELOW_101), "3 day=1/a", False),
    "on a date": ({"Expiration": {"Date": "2027-01-01"}}, ALL, True),
    "markers only": ({"Expiration": {"ExpiredObjectDeleteMarker": True}}, "", False),
    "old versions": ({"NoncurrentVersionExpiration": {"NoncurrentDays": 1}}, "", False),
    "uploads": ({"AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 7}}, "", False),
    "to glacier": ({"Transitions": GLACIER}, ALL, True),
    "to a class that is read at once": (TO_IA, "", False),
    "switched off": (EXPIRES | {"Status": "Disabled"}, "", False),
    "by a foreign tag": (expiring(Tag={"Key": "a", "Value": "b"}), "", False),
}


@pytest.mark.parametrize(("rule", "names", "log"), RULES.values(), ids=RULES)
def test_a_rule_that_deletes_or_archives_live_files_or_the_log_is_found(
    rule: dict[str, Any], names: str, log: bool
) -> None:
    assert harm(rule) == (names, log)


def test_a_rule_that_deletes_the_archive_of_a_table_is_found_and_one_that_moves_it_is_not() -> None:
    live = replace(LIVE, archive="lake/archive/bronze/orders/")
    deletes, moves = (
        configured(rule | {"Filter": {"Prefix": "lake/archive/"}})
        for rule in (EXPIRES, {"Transitions": GLACIER})
    )
    result = assess_lifecycle(deletes, live)
    assert result.is_error
    assert result.sentence == (
        "rule 'r0' (prefix 'lake/archive/') deletes after 365 days: the archive of bronze/orders. "
        "Use a prefix or a tag that excludes them, or disable the rule"
    )
    assert assess_lifecycle(deletes, LIVE).ok and assess_lifecycle(moves, live).ok


def test_our_rule_does_no_harm_and_is_missed_only_if_files_are_tagged() -> None:
    ours = configured(tier_rule("lake/"))
    tagged = replace(LIVE, recorded={"old"})
    assert assess_lifecycle(ours, LIVE).ok and assess_lifecycle((), LIVE).ok
    assert assess_lifecycle(ours, tagged).ok
    result = assess_lifecycle(configured(tier_rule("another/")), tagged)
    assert (result.ok, result.is_error) == (False, False)
    assert "no rule of the bucket moves them" in result.sentence
    assert tier_rule("")["Filter"] == {"Tag": {"Key": "lakehouse-tier", "Value": "removed"}}
    assert tier_rule("")["Transitions"] == [
        {"Days": 30, "StorageClass": "STANDARD_IA"},
        {"Days": 90, "StorageClass": "GLACIER_IR"},
    ]


def test_a_live_file_with_our_tag_is_a_warning_until_it_is_untagged() -> None:
    live = replace(LIVE, recorded={"old", "day=1/b"})
    result = assess_lifecycle(configured(tier_rule("lake/")), live)
    assert (result.ok, result.is_error, result.numbers["tagged_live_files"]) == (False, False, 1)
    assert result.sentence == (
        "1 live file of bronze/orders may carry the tag of removed files, for example day=1/b, "
        "because an older version was restored. Use `lakehouse tiers bronze/orders`, which removes "
        "the tag"
    )


@pytest.mark.parametrize("action", [{"Transitions": GLACIER}, EXPIRES])
def test_a_rule_that_freezes_or_deletes_tagged_files_is_an_error(action: dict[str, Any]) -> None:
    """A RESTORE or a clone of an older version may need them."""
    rule = {**tier_rule("lake/"), "Transitions": [], **action}
    result = assess_lifecycle(configured(rule), LIVE)
    assert (result.ok, result.is_error) == (False, True)
    assert "tagged files of bronze/orders, which a RESTORE or a clone may need" in result.sentence


def test_the_check_names_rule_prefix_table_and_the_way_out() -> None:
    rule = EXPIRES | {"ID": "tidy", "Filter": {"Prefix": "lake/bronze/"}}
    result = assess_lifecycle(configured(rule), LIVE)
    assert (result.ok, result.is_error) == (False, True)
    assert result.sentence == (
        "rule 'tidy' (prefix 'lake/bronze/') deletes after 365 days: 4 of 4 live files of "
        "bronze/orders (for example day=1/a) and the log of bronze/orders. Use a prefix or a tag "
        "that excludes them, or disable the rule"
    )
