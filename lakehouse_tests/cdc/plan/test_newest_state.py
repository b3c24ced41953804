"""What changes add up to does not depend on how they arrive, and is what a dictionary gives to which they are applied in order."""

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lakehouse.declare.change_sources import ChangeKind
from lakehouse_tests.changes import Change, newest_state, type_of_state, written

KEYS = st.integers(0, 3)


def upsert(position: int, key: int, value: str, **more: Any) -> Change:
    return Change(
        operation=ChangeKind.UPSERT,
        position=(position,),
        key=(key,),
        after={"v": value},
        committed_ms=position * 10,
        **more,
    )


def delete(position: int, key: int) -> Change:
    return Change(
        operation=ChangeKind.DELETE, position=(position,), key=(key,), committed_ms=position * 10
    )


def truncate(position: int) -> Change:
    return Change(operation=ChangeKind.TRUNCATE, position=(position,), committed_ms=position * 10)


@st.composite
def streams(draw: st.DrawFn) -> list[Change]:
    """A source's own order: what it would write into its log."""
    found: list[Change] = []
    for position in range(1, draw(st.integers(1, 12)) + 1):
        key = draw(KEYS)
        kind = draw(st.sampled_from(["upsert", "upsert", "upsert", "delete", "move", "truncate"]))
        if kind == "truncate":
            found.append(truncate(position))
        elif kind == "delete":
            found.append(delete(position, key))
        else:
            moved = {"old_key": (draw(KEYS),)} if kind == "move" else {}
            found.append(upsert(position, key, f"{key}@{position}", **moved))
    return found


@given(streams(), st.data())
def test_changes_add_up_to_a_dictionary_to_which_they_were_applied_in_order(
    stream: Sequence[Change], data: st.DataObject
) -> None:
    repeats = data.draw(st.lists(st.sampled_from(stream)))
    arrived = data.draw(st.permutations([*stream, *repeats]))
    state: type_of_state = {}
    for change in stream:
        written(state, change)
    assert newest_state(arrived) == state


def test_between_equal_positions_the_later_place_counts() -> None:
    first, second = (upsert(1, 7, value, place=("f", line)) for line, value in enumerate("ab"))
    assert newest_state([second, first]) == {(7,): {"v": "b"}}


def test_a_row_of_a_full_load_is_older_than_every_change() -> None:
    loaded = Change(
        operation=ChangeKind.UPSERT,
        position=(None,),
        key=(1,),
        after={"v": "loaded"},
        committed_ms=500,
    )
    assert newest_state([upsert(1, 1, "changed"), loaded]) == {(1,): {"v": "changed"}}
    assert newest_state([delete(1, 1), loaded]) == {}
