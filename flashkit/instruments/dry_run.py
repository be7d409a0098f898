"""The kernel launches that a host function would make, recorded and not run; or run with other options.

Without running there is no GPU, no interpreter and no waiting: give tensors on PyTorch's device "meta", which have
shapes and strides, and no memory.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

from flashkit.instruments.hooks import describe_launch
from flashkit.instruments.record import Launch


def launches(function: Callable, *args: Any, **kwargs: Any) -> list[Launch]:
    """Calls ``function`` with every ``kernel[grid](...)`` in it replaced by a note of what was asked for.

    Outputs stay unwritten, so a function that looks at them may fail; what it raises is raised here.
    """
    found: list[Launch] = []

    def note(kernel, *arguments, grid, warmup=False, **options):
        launch = describe_launch(kernel, arguments, options)
        values = {name: argument.value for name, argument in launch.arguments.items()}
        dimensions = grid(values) if callable(grid) else grid
        launch.grid = (*(dimensions if isinstance(dimensions, tuple) else (dimensions,)), 1, 1)[:3]
        found.append(launch)

    with instead(lambda run: note):
        function(*args, **kwargs)
    return found


def with_options(**options: int):
    """A context in which every launch gets these options (num_warps, num_stages) unless it names them itself."""
    return instead(lambda run: lambda kernel, *args, **kwargs: run(kernel, *args, **options | kwargs))


@contextmanager
def instead(replacement: Callable[[Callable], Callable]):
    """Both kinds of kernel, interpreted and compiled, with ``replacement(run)`` for their own ``run``."""
    before = {kind: kind.run for kind in (InterpretedFunction, JITFunction)}
    try:
        for kind, run in before.items():
            kind.run = replacement(run)
        yield
    finally:
        for kind, run in before.items():
            kind.run = run
