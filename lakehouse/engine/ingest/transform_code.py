"""The hash of the code that a derived table's transform runs.

**The hash covers** the transform; the functions, classes, constants and default values that the
transform refers to by name; and all that these refer to in turn, within the same top-level package.
Closures, `functools.partial`, lambdas and the wrappers of decorators are followed. From other
packages, the hash covers only the names that are used, so an upgrade of a library is not a change.
An object of another package's class, such as a DataFrame, is covered only by its type, except for
dates, decimals, UUIDs, regular expressions, and Spark's types and columns.

**The hash does not cover** comments, formatting, docstrings, type annotations, the transform's own
name, and the arguments of `@table`.

Renaming a local variable is a change. The hash is made from Python's syntax trees. It is therefore
the same in every process and, except for rare f-strings, in every release of Python. It differs
between machines if a constant differs, for example a path.
"""

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from hashlib import blake2b
from importlib import import_module
from importlib.util import resolve_name
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from lakehouse.core.declaration.table import Table, table
from lakehouse.engine.ingest.python_source import (
    FunctionNode,
    counted_nodes,
    find_class,
    find_function,
    source_text,
)

# Changes with the way in which hashes are made. Hashes of different kinds are not compared.
_KIND = "ast1"
# A transform that refers to more values gets no hash. Most refer to far fewer.
_MOST_VALUES = 2_000
_SCALARS = (type(None), bool, int, float, complex, str, bytes, type(...))
# Modules with classes whose `repr` describes a value completely.
_LITERAL_MODULES = ("datetime", "decimal", "fractions", "re", "uuid", "pyspark.sql.types")


def transform_code(declared: Table) -> str | None:
    """The hash of a table's transform.

    `None` if the table has no transform, or its code is unknown, for example without source files.
    """
    if declared.transform is None:
        return None
    values = _ReferredValues(_package_of(declared.transform))
    values.refer(declared.transform)
    digest = blake2b(digest_size=8)
    try:
        for number, text in enumerate(values.texts()):
            if number == _MOST_VALUES or not text:
                return None
            digest.update(f"{text}\n".encode(errors="surrogatepass"))
    except Exception:  # foreign objects may raise anything, and unknown code must stop no table
        return None
    return f"{_KIND}:{digest.hexdigest()}"


class _ReferredValues:
    """The values that a transform refers to, numbered in the order of the first reference."""

    def __init__(self, package: str) -> None:
        self._package = package
        self._numbers = dict[int, int]()
        self._values = list[object]()  # also keeps them alive, so that no id is used twice

    def refer(self, value: object) -> str:
        """The text that refers to a value: a scalar itself, or the number of any other value."""
        if type(value) in _SCALARS:
            return repr(value)
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self._values)
            self._values.append(value)
        return f"#{self._numbers[id(value)]}"

    def texts(self) -> Iterator[str]:
        """The text of each value; empty for a function whose source code is not available."""
        index = 0
        while index < len(self._values):  # a text may append further values
            yield self._text_of(self._values[index])
            index += 1

    def _text_of(self, value: object) -> str:
        match value:
            case FunctionType():
                return self._function_text(value)
            case MethodType():
                return f"method {self.refer(value.__func__)} of {self.refer(value.__self__)}"
            case partial():
                arguments = [self.refer(each) for each in value.args]
                return f"partial {self.refer(value.func)} {arguments} {self._named(value.keywords)}"
            case type():
                return self._class_text(value)
            case ModuleType():
                return f"module {value.__name__}"
            case BuiltinFunctionType():
                return f"built-in {value.__qualname__}"
            case _:
                return self._constant_text(value)

    def _constant_text(self, value: object) -> str:
        match value:
            case Table():
                return f"table {value.key}"
            case Enum():
                return f"{value.name} of {self.refer(type(value))}"
            case list() | tuple():
                return f"{type(value).__name__} {[self.refer(each) for each in value]}"
            case dict():
                return f"dict {[(self.refer(key), self.refer(value[key])) for key in value]}"
            case set() | frozenset() if all(type(each) in _SCALARS for each in value):
                return f"set {sorted(map(repr, value))}"
            case _:
                return self._object_text(value)

    def _function_text(self, function: FunctionType) -> str:
        wraps = self._wrapped_text(function)
        scope = function.__globals__
        code = function.__code__
        if not self._is_ours(scope.get("__name__")):
            return _name_of(function) + wraps
        node = find_function(function)
        if node is None:
            return ""
        cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
        closure = {name: _cell_value(cell) for name, cell in cells}
        defaults = [self.refer(each) for each in function.__defaults__ or ()]
        is_transform = self._numbers[id(function)] == 0  # it was referred to first
        parts = [
            _function_source(node, scope, with_decorators=not is_transform),
            self._named(closure),
            f"{defaults}",
            self._named(function.__kwdefaults__ or {}),
            self._globals_text(node, scope, _names_in(code)),
        ]
        return " ".join(parts) + wraps

    def _class_text(self, class_: type) -> str:
        node = find_class(class_) if self._is_ours(class_.__module__) else None
        if node is None:
            return _name_of(class_)
        names = {each.id for each in counted_nodes(node) if isinstance(each, ast.Name)}
        scope = vars(sys.modules[class_.__module__])
        return f"{source_text(node)} {self._globals_text(node, scope, names)}"

    def _globals_text(self, node: ast.AST, scope: Mapping[str, Any], names: set[str]) -> str:
        """References to the globals that a node uses, including members of our own modules."""
        nodes = [*counted_nodes(node)]
        imported = self._imported(nodes, scope)
        known = {**scope, **imported}
        mentioned = {each.id for each in nodes if isinstance(each, ast.Name)}
        used = mentioned & known.keys() & (names | imported.keys())  # `names` has no local names
        values = {name: known[name] for name in sorted(used)}
        for path in sorted({_path_of(each) for each in nodes if isinstance(each, ast.Attribute)}):
            if path and isinstance(values.get(path[0]), ModuleType):
                values[".".join(path)] = self._follow(values[path[0]], path[1:])
        return self._named(values)

    def _imported(self, nodes: Iterable[ast.AST], scope: Mapping[str, Any]) -> dict[str, Any]:
        """The values that a function imports from our modules, by their names in the function."""
        imported = dict[str, Any]()
        for node in nodes:
            if isinstance(node, ast.Import):
                for each in node.names:
                    if self._is_ours(each.name):
                        module = import_module(each.name)
                        top = each.name.partition(".")[0]
                        if each.asname:
                            imported[each.asname] = module
                        else:
                            imported[top] = sys.modules[top]
            if isinstance(node, ast.ImportFrom):
                name = resolve_name("." * node.level + (node.module or ""), scope["__package__"])
                if self._is_ours(name):
                    for each in node.names:
                        imported[each.asname or each.name] = _member(name, each.name)
        return imported

    def _follow(self, module: object, path: tuple[str, ...]) -> object:
        """The value that a path of attributes reaches from a module, inside our modules."""
        value = module
        for name in path:
            if not isinstance(value, ModuleType) or not self._is_ours(value.__name__):
                break
            value = getattr(value, name, None)
        return value

    def _object_text(self, value: object) -> str:
        kind = type(value)
        if wraps := self._wrapped_text(value):
            return _name_of(kind) + wraps
        is_column = kind.__module__.startswith("pyspark.sql.") and kind.__name__ == "Column"
        if kind.__module__ in _LITERAL_MODULES or is_column:
            return repr(value)
        if not self._is_ours(kind.__module__):
            return _name_of(kind)
        members = getattr(value, "__dict__", {})
        if is_dataclass(value):
            members = {each.name: getattr(value, each.name) for each in fields(value)}
        return f"object of {self.refer(kind)} {self._named(members)}"

    def _wrapped_text(self, wrapper: object) -> str:
        """A reference to our function that a wrapper calls; empty for any other value."""
        wrapped = _wrapped_by(wrapper)
        is_ours = wrapped is not None and self._is_ours(_package_of(wrapped))
        return f" wraps {self.refer(wrapped)}" if is_ours else ""

    def _named(self, values: Mapping[str, object]) -> str:
        return str([(name, self.refer(value)) for name, value in values.items()])

    def _is_ours(self, module: object) -> bool:
        return isinstance(module, str) and module.partition(".")[0] == self._package


def _package_of(transform: object) -> str:
    """The top-level package of a callable, without its wrappers."""
    inner = transform
    while (next_ := _inside(inner)) is not None:
        inner = next_
    return str(getattr(inner, "__module__", None)).partition(".")[0]


def _inside(value: object) -> object:
    """The callable inside a partial, a method or a wrapper; `None` for another value."""
    match value:
        case partial():
            return value.func
        case MethodType():
            return value.__func__
        case _:
            return _wrapped_by(value)


def _wrapped_by(value: object) -> object:
    """The function that `functools.wraps` recorded, or `None`."""
    # Not `getattr`: a DataFrame would look for a column of that name.
    return getattr(value, "__dict__", {}).get("__wrapped__")


def _name_of(value: Any) -> str:
    """The package and the name. The module is omitted, because a release may move the value."""
    return f"{value.__module__.partition('.')[0]} {value.__qualname__}"


def _member(module: str, name: str) -> object:
    """The value of a name in a module. The name may also be that of a submodule."""
    parent = import_module(module)
    return getattr(parent, name) if hasattr(parent, name) else import_module(f"{module}.{name}")


def _cell_value(cell: Any) -> object:
    """The value of a closure's variable, or a text if the variable has no value yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return "(empty)"


def _names_in(code: CodeType) -> set[str]:
    """The names of globals and attributes in a function and in the functions inside it."""
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return {*code.co_names}.union(*map(_names_in, inner))


def _function_source(node: FunctionNode, scope: Mapping[str, Any], *, with_decorators: bool) -> str:
    """A function's arguments, body and decorators, without its name and without `@table`."""
    decorators = [] if isinstance(node, ast.Lambda) or not with_decorators else node.decorator_list
    counted = [each for each in decorators if not _is_declaration(each, scope)]
    kind = type(node).__name__
    return f"{kind} {source_text(node.args)} {source_text(node.body)} {source_text(counted)}"


def _is_declaration(decorator: ast.expr, scope: Mapping[str, Any]) -> bool:
    """Whether a decorator is a call of `lakehouse.table`."""
    path = _path_of(decorator.func) if isinstance(decorator, ast.Call) else ()
    value = scope.get(path[0]) if path else None
    for name in path[1:]:
        value = getattr(value, name, None)
    return value is table


def _path_of(node: ast.AST) -> tuple[str, ...]:
    """`("a", "b")` for the expression `a.b`; empty if it does not begin with a name."""
    match node:
        case ast.Name(id=name):
            return (name,)
        case ast.Attribute(value=value, attr=name):
            parent = _path_of(value)
            return (*parent, name) if parent else ()
        case _:
            return ()
