"""Changes of a function's syntax tree, each of which breaks what the function is for."""

import ast
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one function; `apply` edits its tree and returns the number of changed places."""

    text: str
    apply: Callable[[ast.FunctionDef], int]


def returns(value: str) -> Change:
    """The function does nothing but return this expression."""

    def apply(function: ast.FunctionDef) -> int:
        function.body = [ast.Return(_expression(value))]
        return 1

    return Change(f"returns {value}", apply)


def drops(callee: str) -> Change:
    """Calls of `callee` do not happen. In an expression, the first argument takes their place."""

    def visit(node: ast.AST) -> ast.AST | None:
        if isinstance(node, ast.Expr) and _calls(node.value, callee):
            return ast.Pass()
        return node.args[0] if isinstance(node, ast.Call) and _calls(node, callee) else None

    return Change(f"drops {callee}()", lambda function: _replace(function, visit))


def gives(callee: str, value: str) -> Change:
    """Calls of `callee` give this expression instead."""

    def visit(node: ast.AST) -> ast.AST | None:
        return _expression(value) if _calls(node, callee) else None

    return Change(f"{callee}() gives {value}", lambda function: _replace(function, visit))


def reads(name: str, value: str) -> Change:
    """Comparisons that mention `name`, and attributes of this name, give this expression."""

    def visit(node: ast.AST) -> ast.AST | None:
        parts = ast.walk(node) if isinstance(node, ast.Compare) else ()
        is_attribute = isinstance(node, ast.Attribute) and node.attr == name
        is_read = is_attribute or any(_name(part) == name for part in parts)
        return _expression(value) if is_read else None

    return Change(f"reads {name} as {value}", lambda function: _replace(function, visit))


def never_raises() -> Change:
    """`raise` statements are passed over."""

    def visit(node: ast.AST) -> ast.AST | None:
        return ast.Pass() if isinstance(node, ast.Raise) else None

    return Change("never raises", lambda function: _replace(function, visit))


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _name(node: ast.AST) -> str:
    """The last part of a name or an attribute, otherwise nothing."""
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def _calls(node: ast.AST, callee: str) -> bool:
    return isinstance(node, ast.Call) and _name(node.func) == callee


def _replace(function: ast.FunctionDef, visit: Callable[[ast.AST], ast.AST | None]) -> int:
    """Replaces each node for which `visit` gives another one, and returns how many."""
    count = 0

    class Edit(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            nonlocal count
            new = visit(node)
            if new is None:
                return self.generic_visit(node)
            count += 1
            return new

    Edit().generic_visit(function)
    return count


def find_function(tree: ast.AST, qualified_name: str) -> ast.FunctionDef | None:
    """The function of this name, looked for in classes and functions."""
    first, _, rest = qualified_name.partition(".")
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == first:
            if rest:
                return find_function(node, rest)
            return node if isinstance(node, ast.FunctionDef) else None
    return None
