"""The documents keep up with the code: what a person can set or be told stands in them."""

from dataclasses import fields
from pathlib import Path

import pytest

from lakehouse.core.policy import Compaction
from lakehouse.core.reason import Reason
from lakehouse.core.settings import ACCEPTED

DOCS = Path(__file__).resolve().parent.parent / "docs"


@pytest.mark.parametrize("knob", [knob.name for knob in fields(Compaction)])
def test_every_knob_has_its_line(knob: str) -> None:
    assert f"| `{knob}` |" in (DOCS / "policies.md").read_text()


@pytest.mark.parametrize("reason", [reason.name for reason in Reason])
def test_every_reason_has_its_line(reason: str) -> None:
    assert f"| `{reason}` |" in (DOCS / "policies.md").read_text()


@pytest.mark.parametrize("setting", ACCEPTED)
def test_every_setting_has_its_line(setting: str) -> None:
    assert f"| `{setting}` |" in (DOCS / "operations.md").read_text()


def test_every_decision_is_listed() -> None:
    index = (DOCS / "decisions" / "README.md").read_text()
    pages = sorted(page.name for page in (DOCS / "decisions").glob("0*.md"))
    assert pages and [page for page in pages if f"({page})" not in index] == []
