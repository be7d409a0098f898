"""The text of one clean module that holds a student's function and all it uses, with a map back to their lines.

The same text serves interpretation, compilation and grading. Triton's interpreter adds its own module's names to a
kernel's globals, so only names that the source really uses count.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import math
import os
import symtable
import sys
import sysconfig
import textwrap
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

INSTALLED = ("triton", "torch", "numpy", "flashkit", "reference")  # never copied, always imported
CONSTEXPRS = "_constexprs"  # the collected module's name for the values asked for by `constants`


@dataclass(frozen=True)
class Line:
    """One line as the student wrote it. ``where`` is a file name or, in a notebook, such as ``In[3]``."""

    where: str
    lineno: int
    text: str


@dataclass(frozen=True)
class Source:
    """A module's text.

    name      the root function's name in it
    lines     for each line of the text, the student's line it stands for (None: written here)
    packages  top-level packages outside the standard library that the text imports
    missing   name -> type of each global that cannot be written down; the text holds a string in its place
    """

    text: str
    name: str
    lines: tuple[Line | None, ...]
    packages: tuple[str, ...]
    missing: Mapping[str, str]

    def locate(self, lineno: int) -> Line | None:
        """The student's line behind line ``lineno`` (from 1) of the text."""
        return self.lines[lineno - 1] if 1 <= lineno <= len(self.lines) else None


class SourceError(Exception):
    """The function cannot be collected. Its text is one sentence for the student."""


def collect(root: Callable, constants: Mapping[Any, Any] | None = None) -> Source:
    """Gathers a kernel or a host function with its imports, globals and helpers, in an order that runs.

    root       a Triton kernel (interpreted, compiled, or under autotune) or a plain function
    constants  values to add to the text as the dict ``_constexprs``; jit functions and Triton dtypes may be among them

    For a kernel only the ``jit`` decorators are kept: an autotuner or a heuristic does not concern the compiler.
    Raises SourceError when a source cannot be read or two different objects go by one name.
    """
    collector = _Collector(only_jit=is_kernel(root))
    name = collector.add_function(root)
    if constants is not None:
        pairs = ", ".join(f"{key!r}: {collector.expression(value)}" for key, value in constants.items())
        collector.emit([(f"{CONSTEXPRS} = {{{pairs}}}", None)])
    return collector.source(name)


def is_kernel(value: Any) -> bool:
    """True for a function under ``triton.jit``, with or without autotune and heuristics around it."""
    function = plain_function(value)
    return function is not None and function is not value


def plain_function(value: Any) -> types.FunctionType | None:
    """The Python function under Triton's wrappers; None when there is none."""
    while not inspect.isfunction(value):
        if not type(value).__module__.startswith("triton.") or not hasattr(value, "fn"):
            return None
        value = value.fn
    return value


def _written(value: Any) -> types.FunctionType | None:
    """The function as it is written: under Triton's wrappers, or under functools.cache and lru_cache."""
    return plain_function(value.__wrapped__ if type(value).__name__ == "_lru_cache_wrapper" else value)


def display_name(filename: str) -> str:
    """How a student knows a source: ``In[3]`` for a notebook cell, else the file's name."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if shell is not None and (known := getattr(shell.compile, "format_code_name", lambda _: None)(filename)):
        return known[1]
    return os.path.basename(filename)


def is_installed(filename: str | None) -> bool:
    """True when a source file belongs to Python, to an installed package or to the course, not to the student."""
    if filename is None or (filename.startswith("<") and filename not in linecache.cache):
        return True  # generated code
    return os.path.abspath(filename).startswith(_installed_folders())


def _installed_folders() -> tuple[str, ...]:
    folders = [sysconfig.get_path(key) for key in ("stdlib", "platstdlib", "purelib", "platlib")]
    folders += [os.path.dirname(f) for name in INSTALLED if (f := getattr(sys.modules.get(name), "__file__", None))]
    return tuple({os.path.join(os.path.abspath(folder), "") for folder in folders})


def _module_is_installed(name: str) -> bool:
    if name.split(".")[0] in INSTALLED or name in sys.builtin_module_names:
        return True
    module = sys.modules.get(name)
    return name != "__main__" and module is not None and is_installed(getattr(module, "__file__", None))


class _Collector:
    def __init__(self, only_jit: bool):
        self.only_jit = only_jit
        self.defined: dict[str, Any] = {}  # name in the new module -> the object it stands for
        self.header: dict[str, None] = {"import triton": None, "import triton.language": None}
        self.body: list[tuple[str, Line | None]] = []
        self.packages = {"triton"}
        self.missing: dict[str, str] = {}

    def source(self, name: str) -> Source:
        pairs = [(line, None) for line in self.header] + self.body
        text = "".join(line + "\n" for line, _ in pairs)
        return Source(text, name, tuple(line for _, line in pairs), tuple(sorted(self.packages)), self.missing)

    def emit(self, pairs: list[tuple[str, Line | None]]) -> None:
        self.body += pairs

    def add_function(self, value: Any) -> str:
        """Adds a function or class and what it uses; returns its name in the module."""
        target = value if inspect.isclass(value) else _written(value)
        name = target.__name__
        if name == "<lambda>":
            raise SourceError("A lambda outside a function cannot be collected: write it with `def`.")
        if self._claim(name, target):
            pairs = _own_lines(target, self.only_jit)
            text = "\n".join(line for line, _ in pairs)
            for used in _globals_used(text, name):
                self._add_global(used, target)
            self.emit([("", None), ("", None), *pairs])
        return name

    def _claim(self, name: str, value: Any) -> bool:
        """True when the name is new. Raises SourceError when it stands for something else."""
        if name not in self.defined:
            self.defined[name] = value
            return True
        known = self.defined[name]
        if known is not value and not (type(known) is type(value) and known == value):
            raise SourceError(f"Two different objects are called `{name}` in this kernel and its helpers: rename one.")
        return False

    def _add_global(self, name: str, user: Any) -> None:
        scope = _scope(user)
        if name not in scope:
            return  # a builtin, or a name that does not exist: the run itself will say so
        value = scope[name]
        if (inner := _written(value)) is not None or (inspect.isclass(value) and not _importable(value, name)):
            inner = inner or value
            if not _module_is_installed(inner.__module__):
                if self.add_function(value) != name and self._claim(name, inner):
                    self.emit([(f"{name} = {inner.__name__}", None)])
                return
        if self._claim(name, value):
            self._add_value(name, value)

    def _add_value(self, name: str, value: Any) -> None:
        if isinstance(value, types.ModuleType):
            self._import(value.__name__, f"import {value.__name__} as {name}")
        elif statement := _importable(value, name):
            self._import(*statement)
        else:
            self.emit([(f"{name} = {self.expression(value, name)}", None)])

    def _import(self, module: str, statement: str) -> None:
        self.header[statement] = None
        top = module.split(".")[0]
        if top not in sys.stdlib_module_names:
            self.packages.add(top)

    def expression(self, value: Any, name: str = "a value") -> str:
        """Python text that gives an equal value; for what has none, a string that names its type."""
        kind = type(value)
        if value is None or value is Ellipsis or kind in (bool, int, str, bytes):
            return repr(value)
        if kind is float:
            return repr(value) if math.isfinite(value) else f"float({str(value)!r})"
        if kind in (tuple, list):
            inside = "".join(self.expression(item, name) + ", " for item in value)
            return f"({inside})" if kind is tuple else f"[{inside}]"
        if kind is dict:
            return "{" + ", ".join(f"{self.expression(k)}: {self.expression(v)}" for k, v in value.items()) + "}"
        if kind.__module__.startswith("triton.language"):
            if kind.__name__ == "constexpr":
                return f"triton.language.constexpr({self.expression(value.value, name)})"
            if kind.__name__ == "dtype":
                return f"triton.language.dtype({value.name!r})"
        if kind.__module__ == "torch" and kind.__name__ == "dtype":
            self._import("torch", "import torch")
            return repr(value)
        if _written(value) is not None:
            return self.add_function(value)
        if kind.__module__ == "numpy" and hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
            return self.expression(value.item(), name)
        self.missing[name] = kind.__name__
        return repr(f"<{kind.__name__}>")


def _scope(user: Any) -> dict[str, Any]:
    """The names a function or class sees: its module's, then its closure's."""
    if inspect.isclass(user):
        return vars(sys.modules[user.__module__])
    cells = zip(user.__code__.co_freevars, user.__closure__ or (), strict=True)
    closure = {}
    for name, cell in cells:
        try:
            closure[name] = cell.cell_contents
        except ValueError:  # not yet assigned
            continue
    return {**user.__globals__, **closure}


def _importable(value: Any, name: str) -> tuple[str, str] | None:
    """(module, import statement) for a function, class or builtin that an installed module offers by name."""
    value = value if inspect.isclass(value) else plain_function(value) or value
    module, own = getattr(value, "__module__", None), getattr(value, "__name__", None)
    if not isinstance(module, str) or not isinstance(own, str) or not _module_is_installed(module):
        return None
    offered = getattr(sys.modules.get(module), own, None)
    if offered is not value and plain_function(offered) is not value:
        return None
    return module, f"from {module} import {own} as {name}"


def _own_lines(target: Any, only_jit: bool) -> list[tuple[str, Line]]:
    """The source lines of a function or class, dedented, each with the student's line."""
    try:
        lines, first = inspect.getsourcelines(target)
        filename = inspect.getsourcefile(target)
    except (OSError, TypeError) as error:
        message = f"The source of `{target.__name__}` cannot be read: write it in a notebook cell or in a file."
        raise SourceError(message) from error
    where = display_name(filename)
    texts = textwrap.dedent("".join(lines)).split("\n")[: len(lines)]  # splitlines would split at form feeds too
    pairs = [
        (text, Line(where, first + i, raw.rstrip("\n"))) for i, (text, raw) in enumerate(zip(texts, lines, strict=True))
    ]
    if not only_jit or inspect.isclass(target):
        return pairs
    return [pair for i, pair in enumerate(pairs, 1) if i not in _foreign_decorators("\n".join(texts), _scope(target))]


def _foreign_decorators(text: str, scope: Mapping[str, Any]) -> set[int]:
    """Line numbers (from 1) of the decorators that are not ``jit``, whatever name it was imported by."""

    def is_jit(node: ast.expr) -> bool:
        named = node.func if isinstance(node, ast.Call) else node
        meant = scope.get(named.id) if isinstance(named, ast.Name) else None
        return getattr(meant, "__name__", "") == "jit" or "jit" in (ast.get_source_segment(text, node) or "")

    decorators = ast.parse(text).body[0].decorator_list
    return {n for node in decorators if not is_jit(node) for n in range(node.lineno, node.end_lineno + 1)}


def _globals_used(text: str, own_name: str) -> list[str]:
    """Names that a definition looks up outside itself, in alphabetical order."""
    found: set[str] = set()

    def walk(table: symtable.SymbolTable, top: bool) -> None:
        for symbol in table.get_symbols():
            if symbol.is_referenced() and (top or symbol.is_global()):
                found.add(symbol.get_name())
        for child in table.get_children():
            walk(child, False)

    walk(symtable.symtable(text, "<source>", "exec"), True)
    return sorted(found - {own_name})
