"""The result of a check: of a table, of an inventory, or of the budgets."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The result of one check.

    A failure is an error with `is_error`: data is lost, unreadable or about to be, or a write will
    be refused. Otherwise, it is a warning. `numbers` and `details` become metadata of the check's
    evaluation in Dagster.
    """

    name: str
    ok: bool
    sentence: str
    is_error: bool = False
    numbers: Mapping[str, float] = field(default_factory=dict[str, float])
    details: Mapping[str, Any] = field(default_factory=dict[str, Any])
