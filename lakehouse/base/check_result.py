"""The result of a check: of a table or of an inventory."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The result of one check.

    With `is_error`, a failure is an error: for example, data is lost or unreadable, or the next
    write will be refused. Otherwise, it is a warning. `numbers` and `details` become metadata of
    the evaluation of the check in Dagster.
    """

    name: str
    ok: bool
    sentence: str
    is_error: bool = False
    numbers: Mapping[str, float] = field(default_factory=dict[str, float])
    details: Mapping[str, Any] = field(default_factory=dict[str, Any])
