"""Columns of a table: names and types in a Spark DDL string, and which types are wider.

Types are Spark's simple strings, like `bigint` and `struct<email:string,city:string>`. Members are
matched by name, never by position, at any depth of structs, arrays and maps. A struct whose member
names are not plain words cannot be parsed, and counts as a type without members.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from lakehouse.base.errors import Refused
from lakehouse.base.frozen import frozen
from lakehouse.base.text import nearest_words
from lakehouse.delta.snapshot import Column

_FIELD = re.compile(r"(?:`((?:[^`]|``)+)`|(\w+))(?:\s*:\s*|\s+)\S", re.DOTALL)
# A bracket, a comma or a quoted part. A quote that is not closed extends to the end.
# Source: Spark's SqlBaseLexer.g4, STRING_LITERAL and BACKQUOTED_IDENTIFIER
_TOKEN = re.compile(r"""[<>(),]|'(?:[^'\\]|\\.)*+'?|"(?:[^"\\]|\\.)*+"?|`[^`]*+`?""", re.DOTALL)


def field_names(ddl: str | None) -> tuple[str, ...]:
    """The top-level fields of a Spark DDL string; empty if any field has no name or no type."""
    return tuple(name for name, _ in field_types(ddl))


@cache
def field_types(ddl: str | None) -> tuple[tuple[str, str], ...]:
    """The top-level fields with their types, including a suffix like `NOT NULL`.

    Empty if any field has no name or no type.
    """
    fields = list[tuple[str, str]]()
    for part in _split(ddl or ""):
        match = _FIELD.match(part)
        if match is None:
            return ()
        name = (match[1] or "").replace("``", "`") or match[2]
        # `_FIELD` ends with the first character of the type.
        fields.append((name, part[match.end() - 1 :]))
    return tuple(fields)


def _split(text: str) -> list[str]:
    """The parts between the commas outside of brackets and quotes.

    The text ends before a bracket that closes more than it opens.
    """
    parts = list[str]()
    depth = 0
    start = 0
    for token in _TOKEN.finditer(text):
        if token[0] in "<(":
            depth += 1
        elif token[0] in ">)":
            depth -= 1
            if depth < 0:
                text = text[: token.start()]
                break
        elif token[0] == "," and depth == 0:
            parts.append(text[start : token.start()].strip())
            start = token.end()
    return [*parts, text[start:].strip()]


def struct_types(type_: str) -> Mapping[str, str]:
    """The fields of a STRUCT with their types; empty for any other type."""
    return parts(type_) if type_word(type_) == "STRUCT" else {}


# Source: Spark's SQL reference, "Data Types"
_SYNONYMS = {
    "BYTE": "TINYINT",
    "SHORT": "SMALLINT",
    "INTEGER": "INT",
    "LONG": "BIGINT",
    "REAL": "FLOAT",
    "DEC": "DECIMAL",
    "NUMERIC": "DECIMAL",
    "TIMESTAMP_LTZ": "TIMESTAMP",
}


def type_word(type_: str) -> str:
    """The first word of a type, in upper case, such as `DECIMAL` of `decimal(8, 2)`.

    Of several words for the same type, it is always the same one.
    """
    word = re.split(r"\W", type_.strip().upper(), maxsplit=1)[0]
    return _SYNONYMS.get(word, word)


def check_columns(what: str, names: Sequence[Any], *, among: Sequence[str] | None = None) -> None:
    """Refuses a lone string, an empty or duplicate name, and a column that is not in `among`.

    Names that differ only in case are duplicates, as in Spark. But a column must have the same case
    as in `among`.
    """
    if isinstance(names, str):
        raise Refused(
            f"{what} is {names!r}, which is one string. Use a tuple of names, like ({names!r},)."
        )
    seen: set[str] = set()
    for name in names:
        if not isinstance(name, str):
            raise Refused(f"{what} holds {name!r}. Use names of columns.")
        if not name.strip():
            raise Refused(f"{what} holds the empty name {name!r}. Use names of columns.")
        if name.lower() in seen:
            raise Refused(
                f"{what} holds {name!r} twice. Name each column once; upper and lower case are"
                " equal."
            )
        seen.add(name.lower())
        if among is not None and name not in among:
            near = nearest_words(name, among, most=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"Use one of {', '.join(among)}."
            raise Refused(f"{what} holds the unknown column {name!r}. {hint}")


def check_renamed(
    what: str, renamed: Mapping[str, str], columns: Sequence[str] | None = None
) -> None:
    """Refuses a renaming if the old name is still declared, or if the new name is not declared.

    Also refuses empty names, names that start with `_`, and an old name that is the new name of
    another renaming. `columns` are the declared columns, or `None` if they are unknown.
    """
    for old, new in renamed.items():
        if not old.strip() or not new.strip() or old.startswith("_") or new.startswith("_"):
            raise Refused(
                f"{what} maps {old!r} to {new!r}. Use column names that do not start with _."
            )
        if old in renamed.values():
            raise Refused(
                f"{what} maps {old!r} to {new!r}, and another name to {old!r}. Use only the present"
                " name as the target of each earlier name."
            )
        if old.lower() == new.lower():
            raise Refused(
                f"{what} maps {old!r} to {new!r}, but names that differ only in upper and lower"
                " case are one column. Leave it out."
            )
        if columns is not None and old.lower() in [name.lower() for name in columns]:
            raise Refused(
                f"{what} maps {old!r} to {new!r}, but {old!r} is still declared. Either remove"
                f" {old!r} from the declared columns, or from renamed."
            )
    if columns is not None:
        check_columns(what, [*dict.fromkeys(renamed.values())], among=columns)


_WHOLE = ("tinyint", "smallint", "int", "bigint")
# The number of digits that a decimal needs before its point. Delta requires as many for the smaller
# types as for `int`.
_DIGITS = {"tinyint": 10, "smallint": 10, "int": 10, "bigint": 20}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_NESTED = re.compile(r"(array|map|struct)\s*<", re.IGNORECASE)

Path = tuple[str, ...]


@frozen
class NewColumn:
    """A column to add to a table after another one, or first if `after` is `None`.

    For a member of a struct, `parent` is the path of the struct. In a path, `element` and `value`
    stand for the parts of arrays and maps, as in Delta's SQL.
    """

    column: Column
    after: str | None
    parent: Path = ()

    @property
    def name(self) -> str:
        """The name of the column; for a member, with the path of its struct."""
        return ".".join((*self.parent, self.column.name))


@frozen
class TypeChange:
    """The difference between the type of an existing column and its declared type.

    - `merged`: the existing type with the declared changes; members that are no longer declared
      stay.
    - `added`: members that are only declared.
    - `left`: the full names of members that are only in the table, with their types.
    - `casts`: pairs of an existing and a declared type that differ otherwise.
    """

    merged: str
    added: tuple[NewColumn, ...] = ()
    left: tuple[tuple[str, str], ...] = ()
    casts: tuple[tuple[str, str], ...] = ()

    @property
    def is_possible(self) -> bool:
        """Whether the values can be converted by the names of their members."""
        return not any(is_nested(type_) for pair in self.casts for type_ in pair)


def is_nested(type_: str) -> bool:
    """Whether the type is a struct, an array or a map."""
    return _NESTED.match(type_) is not None


def type_change(before: str, after: str, path: Path = ()) -> TypeChange:
    """The change of the column or member at `path` from one type to another."""
    if before == after:
        return TypeChange(merged=before)
    old_parts = parts(before)
    new_parts = parts(after)
    if before.startswith("struct<") and old_parts and new_parts and after.startswith("struct<"):
        return _struct_change(old_parts, new_parts, path)
    # The keys of a map cannot get other members, because keys must stay different.
    is_same_shape = old_parts.keys() == new_parts.keys() and bool(old_parts)
    if not is_same_shape or old_parts.get("key") != new_parts.get("key"):
        return TypeChange(merged=after, casts=((before, after),))
    part = "element" if "element" in new_parts else "value"
    change = type_change(old_parts[part], new_parts[part], (*path, part))
    merged = {**new_parts, part: change.merged}
    word = before.partition("<")[0]
    return TypeChange(
        merged=f"{word}<{','.join(merged.values())}>",
        added=change.added,
        left=change.left,
        casts=change.casts,
    )


def _struct_change(old: Mapping[str, str], new: Mapping[str, str], path: Path) -> TypeChange:
    declared_names = {name.lower(): name for name in new}
    merged = list[tuple[str, str]]()
    added = list[NewColumn]()
    left = list[tuple[str, str]]()
    casts = list[tuple[str, str]]()
    for name, type_ in old.items():
        declared_name = declared_names.get(name.lower())
        if declared_name is None:
            left.append((".".join((*path, name)), type_))
            merged.append((name, type_))
            continue
        change = type_change(type_, new[declared_name], (*path, name))
        merged.append((name, change.merged))
        added += change.added
        left += change.left
        casts += change.casts
    after: str | None = None
    place = 0
    for name, type_ in new.items():
        spellings = [each.lower() for each, _ in merged]
        if name.lower() in spellings:
            place = spellings.index(name.lower())
        else:
            column = Column(name=name, type=type_)
            added.append(NewColumn(column=column, after=after, parent=path))
            merged.insert(place, (name, type_))
        after, _ = merged[place]
        place += 1
    members = ",".join(f"{name}:{type_}" for name, type_ in merged)
    return TypeChange(
        merged=f"struct<{members}>", added=tuple(added), left=tuple(left), casts=tuple(casts)
    )


def converted(value: str, before: str, after: str, depth: int = 0) -> str:
    """A SQL expression for a value of type `before` as a value of type `after`.

    Members are taken by name. A member that `before` lacks is null. A null stays null at any depth.
    """
    if before == after:
        return value
    old = parts(before)
    new = parts(after)
    is_struct = before.startswith("struct<") and after.startswith("struct<")
    if not old or not new or not (is_struct or old.keys() == new.keys()):
        return f"try_cast({value} AS {after})"
    item = f"x{depth}"
    if "element" in new and not is_struct:
        element = converted(item, old["element"], new["element"], depth + 1)
        return f"transform({value}, {item} -> {element})"
    if not is_struct:
        member = converted(item, old["value"], new["value"], depth + 1)
        return f"transform_values({value}, (k{depth}, {item}) -> {member})"
    old_names = {name.lower(): name for name in old}
    members = list[str]()
    for name, type_ in new.items():
        old_name = old_names.get(name.lower())
        member = f"CAST(NULL AS {type_})"
        if old_name is not None:
            member = converted(f"{value}.`{old_name}`", old[old_name], type_, depth)
        members.append(f"'{name}', {member}")
    return f"if({value} IS NULL, NULL, named_struct({', '.join(members)}))"


@cache
def parts(type_: str) -> Mapping[str, str]:
    """The members of a struct, or the parts of an array or map; empty for any other type.

    `type_` may also be DDL.
    """
    nested = _NESTED.match(type_)
    if nested is None:
        return {}
    inside = type_[nested.end() :]
    if nested[1].lower() == "struct":
        return dict(field_types(inside))
    names = ("element",) if nested[1].lower() == "array" else ("key", "value")
    return dict(zip(names, _split(inside), strict=False))


def is_wider(before: str, after: str) -> bool:
    """Whether Delta can widen type `before` to `after`, another type. Both are Spark's strings.

    Source: Delta's protocol, "Type Widening", supported type changes.
    """
    if before in _WHOLE and after in _WHOLE:
        return _WHOLE.index(before) < _WHOLE.index(after)
    if (before, after) in (("float", "double"), ("date", "timestamp_ntz")):
        return True
    if after == "double":
        return before in ("tinyint", "smallint", "int")
    target = _DECIMAL.fullmatch(after)
    if target is None:
        return False
    precision = int(target[1])
    scale = int(target[2])
    if before in _DIGITS:
        return precision - scale >= _DIGITS[before]
    source = _DECIMAL.fullmatch(before)
    if source is None:
        return False
    source_scale = int(source[2])
    has_digits = precision - scale >= int(source[1]) - source_scale
    return before != after and scale >= source_scale and has_digits
