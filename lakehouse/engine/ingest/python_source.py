"""Finds the source code of functions and classes, and writes it in a form to compare.

Comments, formatting, docstrings and type annotations are not part of that form.
"""

import ast
import linecache
import sys
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

_IGNORED_FIELDS = frozenset({"annotation", "ctx", "kind", "returns", "type_comment", "type_params"})

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def find_function(function: FunctionType) -> FunctionNode | None:
    """The syntax tree of a function; `None` if its source code is not available."""
    code = function.__code__
    found = [
        node
        for node in _nodes_in(code.co_filename, function.__globals__)
        if isinstance(node, FunctionNode)
        and getattr(node, "name", "<lambda>") == code.co_name
        and _first_line(node) == code.co_firstlineno
    ]
    if len(found) > 1:  # several lambdas in one line: the innermost that contains all instructions
        found = [node for node in found if _contains(node, code)]
        found.sort(key=lambda node: (node.lineno, node.col_offset))
    return found[-1] if found else None


def find_class(class_: type) -> ast.ClassDef | None:
    """The syntax tree of a class; `None` if its source code is not available, or not certain."""
    module = sys.modules.get(class_.__module__)
    file = getattr(module, "__file__", None)
    if module is None or file is None:
        return None
    found = [
        node
        for node in _nodes_in(file, vars(module))
        if isinstance(node, ast.ClassDef) and node.name == class_.__name__
    ]
    return found[0] if len(found) == 1 else None


def counted_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """The node and all nodes below it that are part of its text."""
    yield node
    for name, value in ast.iter_fields(node):
        if name not in _IGNORED_FIELDS:
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, ast.AST):
                    yield from counted_nodes(each)


def source_text(value: object) -> str:
    """A syntax tree as text, without positions, docstrings and annotations."""
    match value:
        case list():
            kept = [each for each in value if not _has_no_effect(each)]
            return f"[{', '.join(map(source_text, kept))}]"
        case ast.AnnAssign(target=target, value=ast.AST() as assigned):
            return source_text(ast.Assign(targets=[target], value=assigned))
        case ast.AST():
            parts = [
                f"{name}={source_text(each)}"
                for name, each in ast.iter_fields(value)
                if name not in _IGNORED_FIELDS and each is not None and each != []
            ]
            return f"{type(value).__name__}({', '.join(parts)})"
        case _:
            return repr(value)


def _nodes_in(file: str, scope: dict[str, Any]) -> Iterator[ast.AST]:
    """All nodes of a module's syntax tree; none if its source code is not available."""
    linecache.checkcache(file)
    tree = _parsed("".join(linecache.getlines(file, scope)))
    return ast.walk(tree)


@lru_cache(maxsize=64)
def _parsed(text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return ast.Module(body=[], type_ignores=[])


def _first_line(node: FunctionNode) -> int:
    """The line of a function's first decorator, or its own."""
    decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
    return min(each.lineno for each in (node, *decorators))


def _contains(node: FunctionNode, code: CodeType) -> bool:
    """Whether all instructions come from the text of a function."""
    begin = (node.lineno, node.col_offset)
    end = (node.end_lineno or 0, node.end_col_offset or 0)
    for line, end_line, column, end_column in code.co_positions():
        if line is None or end_line is None or column is None or end_column is None:
            continue
        first, last = (line, column), (end_line, end_column)
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
