"""Finds the source code of functions and classes, and normalizes it for comparisons.

The normalized form has no comments, formatting, docstrings, type annotations or `pass`.
"""

import ast
import linecache
import sys
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

_IGNORED_FIELDS = frozenset({"annotation", "ctx", "kind", "returns", "type_comment", "type_params"})
_MODULES_KEPT = 64  # in the cache of parsed modules

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
DefinitionNode = FunctionNode | ast.ClassDef


def find_function(function: FunctionType) -> FunctionNode | None:
    """The syntax tree of a function; `None` if its source code is not available, or was changed."""
    code = function.__code__
    candidates = [
        node
        for node in _definitions_in(code.co_filename, function.__globals__)
        if isinstance(node, FunctionNode)
        and getattr(node, "name", "<lambda>") == code.co_name
        and _first_line(node) == code.co_firstlineno
    ]
    if len(candidates) > 1:
        # If a line has several lambdas, take the innermost lambda that contains all instructions.
        candidates = [node for node in candidates if _contains(node, code)]
        candidates.sort(key=lambda node: (node.lineno, node.col_offset))
    return candidates[-1] if candidates else None


def find_class(class_: type) -> ast.ClassDef | None:
    """The syntax tree of a class.

    `None` if its source code is not available, or its module defines several classes of this name.
    """
    module = sys.modules.get(class_.__module__)
    file = getattr(module, "__file__", None)
    if module is None or file is None:
        return None
    candidates = [
        node
        for node in _definitions_in(file, vars(module))
        if isinstance(node, ast.ClassDef) and node.name == class_.__name__
    ]
    return candidates[0] if len(candidates) == 1 else None


def counted_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """The node and its descendants, in any order, without annotations."""
    nodes = [node]
    while nodes:
        each = nodes.pop()
        yield each
        for _, value in _fields_of(each):
            children = value if isinstance(value, list) else [value]
            nodes += [child for child in children if isinstance(child, ast.AST)]


def source_text(tree: object) -> str:
    """A syntax tree, or a list of trees, as text, without positions, docstrings and annotations."""
    texts = list[str]()
    # A stack instead of recursion, because a chain of a few hundred calls is as many levels deep. A
    # tuple on the stack contains finished text. What is pushed last is written first.
    stack: list[object] = [tree]
    while stack:
        value = stack.pop()
        if isinstance(value, tuple):
            texts += value
        elif isinstance(value, list):
            kept = [each for each in value if not _has_no_effect(each)]
            stack += [("]",), *reversed(kept), ("[",)]
        elif isinstance(value, ast.AnnAssign) and value.value is not None:
            # `x: int = 1` gives the same text as `x = 1`.
            stack.append(ast.Assign(targets=[value.target], value=value.value))
        elif isinstance(value, ast.AST):
            stack.append((")",))
            for name, each in reversed(_fields_of(value)):
                stack += [each, (f" {name}=",)]
            stack.append((f"{type(value).__name__}(",))
        else:
            texts.append(repr(value))
    return "".join(texts)


def _fields_of(node: ast.AST) -> list[tuple[str, Any]]:
    return [
        (name, value)
        for name, value in ast.iter_fields(node)
        if name not in _IGNORED_FIELDS and value is not None and value != []
    ]


def _definitions_in(file: str, scope: dict[str, Any]) -> tuple[DefinitionNode, ...]:
    """All functions and classes of a module; none if its source code is not available."""
    linecache.checkcache(file)
    return _parsed("".join(linecache.getlines(file, scope)))


@lru_cache(maxsize=_MODULES_KEPT)
def _parsed(text: str) -> tuple[DefinitionNode, ...]:
    return tuple(node for node in ast.walk(ast.parse(text)) if isinstance(node, DefinitionNode))


def _first_line(node: FunctionNode) -> int:
    """The line of a function's first decorator, or of the function itself."""
    decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
    return min(each.lineno for each in (node, *decorators))


def _contains(node: FunctionNode, code: CodeType) -> bool:
    """Whether all instructions of `code` come from the text of `node`."""
    begin = (node.lineno, node.col_offset)
    end = (node.end_lineno or 0, node.end_col_offset or 0)
    # An instruction without a position, or with an empty one, comes from no text.
    for line, end_line, column, end_column in code.co_positions():
        if line is None or end_line is None or column is None or end_column is None:
            continue
        first = (line, column)
        last = (end_line, end_column)
        if first != last and not (begin <= first and last <= end):
            return False
    return True


def _has_no_effect(statement: object) -> bool:
    """Whether a statement is a docstring, another constant, or `pass`."""
    match statement:
        case ast.Pass() | ast.Expr(value=ast.Constant()):
            return True
        case _:
            return False
