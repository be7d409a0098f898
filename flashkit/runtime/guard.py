"""What an answer may not be made of: the course's oracles, or PyTorch's own attention and matrix products."""

from __future__ import annotations

import builtins
import contextlib
import types

ORACLES = ("reference", "flashkit.exercises")
REFUSED_OPERATORS = "Write that part in the kernel: torch may allocate, view and copy, but not compute the answer."

FOREIGN_NUMBERS = (
    "The kernel loads {name}, whose numbers were computed outside it: by NumPy, in another thread or before the call. "
    "Compute the answer in the kernel, from the inputs."
)


class Refused(Exception):
    """Student code reached for something that would be the answer itself; the text says what."""


def _is_oracle(module: str) -> bool:
    return any(module == name or module.startswith(name + ".") for name in ORACLES)


def refuse_oracle_globals(function) -> None:
    """Raise Refused if the function, or a function of its module that it calls, uses the course's oracle."""
    seen, todo = set(), [function]
    while todo:
        current = todo.pop()
        if not isinstance(current, types.FunctionType) or current in seen:
            continue
        seen.add(current)
        for name in _names(current.__code__):
            value = current.__globals__.get(name)
            home = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)
            if isinstance(home, str) and _is_oracle(home):
                raise Refused(f"{current.__name__} uses {name}, which is the course's oracle ({home}).")
            if isinstance(home, str) and home == function.__module__:
                todo.append(getattr(value, "fn", value))


def _names(code) -> set[str]:
    inner = (c for c in code.co_consts if isinstance(c, types.CodeType))
    return set(code.co_names).union(*map(_names, inner))


@contextlib.contextmanager
def no_oracle_imports():
    """Refuse imports of the oracle while student code runs."""
    real = builtins.__import__

    def guarded(name, *args, **kwargs):
        if _is_oracle(name):
            raise Refused(f"The kernel's function imports {name}, which is the course's oracle.")
        return real(name, *args, **kwargs)

    builtins.__import__ = guarded
    try:
        yield
    finally:
        builtins.__import__ = real
