"""The kernel launches that a host function would make, recorded and not run: no GPU, no interpreter, no waiting.

Give it tensors on PyTorch's device "meta": they have shapes and strides, and no memory.
"""

from __future__ import annotations

from collections.abc import Callable
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

    before = {kind: kind.run for kind in (InterpretedFunction, JITFunction)}
    try:
        for kind in before:
            kind.run = note
        function(*args, **kwargs)
    finally:
        for kind, run in before.items():
            kind.run = run
    return found
