"""Is a collected module plain: imports of Triton, constants and jit functions, so that importing it runs nothing?

What a kernel calls while it is compiled is not seen here: the compiler's child keeps to Triton's own functions
(``only_triton`` in flashkit.instruments.compile_child).
"""

from __future__ import annotations

import ast

PLAIN = (
    *(ast.Constant, ast.Tuple, ast.List, ast.Dict, ast.Name, ast.Attribute, ast.UnaryOp, ast.BinOp, ast.Call),
    *(ast.keyword, ast.expr_context, ast.operator, ast.unaryop),
)
LANGUAGES = ("triton.language", "triton.experimental.gluon")
IMPORTABLE = ("triton", "triton.runtime.jit", "math", "numpy", "torch")  # and what lies in the languages and in torch
MAKERS = ("constexpr", "dtype", "pointer_type")  # of a language, that a default or a constant may call
LONGEST = 2**18  # characters: a hundred times a kernel with its helpers


def not_plain(text: str) -> str:
    """Why importing the module could run code of the student's; "" when it cannot. Raises SyntaxError and the like."""
    if len(text) > LONGEST:
        return f"Its source has {len(text):,} characters; at most {LONGEST:,} are compiled."
    known: dict[str, str] = {}  # name -> what was imported by it; "" for what the module itself defines
    for node in ast.parse(text).body:
        if not _takes(node, known):
            return f"Its line {node.lineno} does more than define a kernel or a constant."
    return ""


def imported(text: str) -> set[str]:
    """The modules that a plain module imports, with their parents."""
    nodes = [node for node in ast.parse(text).body if isinstance(node, (ast.Import, ast.ImportFrom))]
    names = [node.module if isinstance(node, ast.ImportFrom) else alias.name for node in nodes for alias in node.names]
    return {name.rsplit(".", depth)[0] for name in names for depth in range(name.count(".") + 1)}


def _takes(node: ast.stmt, known: dict[str, str]) -> bool:
    """Is the statement plain? Then ``known`` learns the names that it defines, which none may define anew."""
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        found = _imports(node)
        again = any(known.get(name, target) != target for name, target in found.items())
        known.update(found)
        return bool(found) and not again
    if isinstance(node, ast.FunctionDef):
        names, arguments = [node.name], node.args
        given = [*arguments.defaults, *(d for d in arguments.kw_defaults if d)]
        notes = [a.annotation for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs) if a.annotation]
        notes += [node.returns] if node.returns else []
        jitted = bool(node.decorator_list) and all(_is_jit(d, known) for d in node.decorator_list)
        plain = jitted and all(_is_plain(expression, known) for expression in (*given, *notes))
    elif isinstance(node, ast.Assign):
        names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        plain = len(names) == len(node.targets) and _is_plain(node.value, known)
    else:
        return False
    plain = plain and not any(name in known or name == "float" for name in names)
    known.update(dict.fromkeys(names, ""))
    return plain


def _imports(node: ast.Import | ast.ImportFrom) -> dict[str, str]:
    """Name -> what it stands for; empty for an import that is not allowed."""
    if isinstance(node, ast.ImportFrom):
        module, whole = node.module or "", {alias.asname or alias.name: alias.name for alias in node.names}
        allowed = not node.level and _importable(module) and "*" not in whole
        return {name: f"{module}.{own}" for name, own in whole.items()} if allowed else {}
    if not all(_importable(alias.name) for alias in node.names):
        return {}
    tops = [(alias.asname or alias.name.split(".")[0], alias) for alias in node.names]
    return {name: alias.name if alias.asname else name for name, alias in tops}


def _importable(module: str) -> bool:
    return module in IMPORTABLE or module.startswith((*LANGUAGES, "torch."))


def _is_jit(decorator: ast.expr, known: dict[str, str]) -> bool:
    """``triton.jit`` or ``gluon.jit`` by any name, with options or without."""
    options: list[ast.expr] = []
    if isinstance(decorator, ast.Call):
        options = [*decorator.args, *(keyword.value for keyword in decorator.keywords)]
        decorator = decorator.func
    path = _path(decorator, known)
    return path.startswith("triton.") and path.endswith(".jit") and all(_is_plain(o, known) for o in options)


def _is_plain(expression: ast.expr, known: dict[str, str]) -> bool:
    nodes = list(ast.walk(expression))
    called = [_path(node.func, known) for node in nodes if isinstance(node, ast.Call)]
    return all(isinstance(node, PLAIN) for node in nodes) and all(map(_is_maker, called))


def _is_maker(path: str) -> bool:
    return path == "float" or (path.startswith(LANGUAGES) and path.rpartition(".")[2] in MAKERS)


def _path(expression: ast.expr, known: dict[str, str]) -> str:
    """The full name of what an expression names, as in ``triton.language.constexpr``; "" for what is no name."""
    names = []
    while isinstance(expression, ast.Attribute):
        names.append(expression.attr)
        expression = expression.value
    if not isinstance(expression, ast.Name):
        return ""
    root = known.get(expression.id, expression.id if expression.id == "float" else "")
    return ".".join([root, *reversed(names)]) if root else ""
