"""The code version is the declared one, or a hash of the function's own source."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial, wraps
from typing import Any

import pytest

from lakehouse import Append, Table
from lakehouse.base.errors import Refused
from lakehouse_tests.support.example_lake import events


def of(transform: Callable[..., Any], **more: Any) -> str | None:
    table = Table(key="silver/t", inputs=(events,), write=Append(), transform=transform, **more)
    return table.transform_code


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(events: Any) -> Any:
        return function(events)

    return call


def ids(events: Any) -> Any:
    return events.select("id")


def test_the_source_of_the_function_counts_and_its_decorators_do_not() -> None:
    @decorated
    def wrapped(events: Any) -> Any:
        return events.select("id")

    def plain(events: Any) -> Any:
        return events.select("id")

    before = of(wrapped)
    assert before is not None and before == of(wrapped)
    assert of(partial(ids)) == of(ids)
    assert len({before, of(plain), of(ids), of(lambda events: events), None}) == 5


def test_a_declared_version_replaces_the_hash() -> None:
    assert of(ids, code_version="2") == of(lambda events: events, code_version="2")
    assert len({of(ids), of(ids, code_version="1"), of(ids, code_version="2")}) == 3
    assert events.transform_code is None
    with pytest.raises(Refused, match="code_version is set, but the table has no transform"):
        replace(events, code_version="1")


def test_a_function_without_source_has_no_known_code() -> None:
    scope: dict[str, Any] = {}
    exec("def made(events):\n    return events", scope)
    assert of(scope["made"]) is None
