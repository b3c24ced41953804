"""Paths of logs, and the one spelling by which they are compared."""

import pytest

from lakehouse.base.paths import bare_uri, name_below, name_in_table, plain_path


@pytest.mark.parametrize(
    ("uri", "name"),
    [
        ("s3://b/lake/a/t/x", "a/t/x"),
        ("s3a://b/lake/a/t/x", "a/t/x"),
        ("s3n://b/lake//a/./u/../t/x", "a/t/x"),
        ("s3://b/other/../lake/x", "x"),
        ("s3://b/lake/../x", None),
        ("s3://b/lakes/x", None),
        ("s3://b/lake", None),
        ("s3://other/lake/x", None),
        ("file:/lake/x", None),
    ],
)
def test_a_uri_has_a_name_below_the_root_that_it_leads_to(uri: str, name: str | None) -> None:
    assert name_below(uri, "s3a://b/lake/") == name


@pytest.mark.parametrize(
    "uri",
    ["file:/lake/x", "file:///lake/x", "/lake/x", "/lake//x/", "file:///lake/y/../x", "/lake/./x"],
)
def test_a_folder_of_this_machine_has_one_spelling(uri: str) -> None:
    assert bare_uri(uri) == "/lake/x"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("d=1/x", "d=1/x"),
        ("d=a%2520b/x", "d=a%20b/x"),
        ("./x", "x"),
        ("d=1//./x", "d=1/x"),
        ("d=1/../x", "x"),
        ("%2E/x", "x"),
        ("x%3A/y", "x:/y"),
        ("../t/x", None),
        ("d=1/../../t/x", None),
        ("..", None),
        ("/x", None),
        ("s3://b/x", None),
        ("file:/x", None),
    ],
)
def test_a_path_of_a_log_names_the_file_that_delta_reads(path: str, name: str | None) -> None:
    assert name_in_table(path) == name


@pytest.mark.parametrize("path", ["...", "a..b/c", "..a/b", "a/.b", "x.", " /y"])
def test_dots_within_a_name_are_its_own(path: str) -> None:
    assert plain_path(path) == path
