"""Compiles CUDA C++ text for GPU architectures in a clean child, with no GPU: the compile gate for CUDA labs.

NVRTC (through cuda-core) makes a cubin; cuobjdump tells registers and local memory. No header is there: kernels use
what the language has built in, and INFINITY, which is defined for them.
"""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flashkit.instruments.compile_gate import CPU_SECONDS, CompileResult, Pending
from flashkit.runtime.source import Line, Source, display_name

CHILD = Path(__file__).with_name("cuda_child.py")
TEXT = "the CUDA text"  # where a line is, when the text's place in the student's cell is not known


def start(text: str, kernel: str, arch: str, function: Callable | None = None, listing: bool = False) -> Pending:
    """Starts compiling ``text`` for ``arch`` ("90a" is sm_90a); returns at once and raises nothing.

    ``function`` is the student's, in whose cell or file the text stands, so that lines are counted there; ``listing``
    asks for what the kernel is made of too.
    """
    asked = request(kernel, arch) | {"listing": listing}
    try:
        return _Pending(kernel, arch, source_of(text, kernel, function), asked)
    except OSError as error:  # a full disk, no more processes
        return Pending.answered(CompileResult(kernel, "unavailable", arch=arch, error="OSError", message=str(error)))


def request(kernel: str, arch: str) -> dict[str, Any]:
    """What the child is told beside the text."""
    return {"kernel": kernel, "arch": arch, "cpu_seconds": CPU_SECONDS}


def source_of(text: str, kernel: str, function: Callable | None = None) -> Source:
    """The text with the student's line behind each of its lines: in the function's cell if it stands there as it is."""
    file = getattr(inspect.unwrap(function), "__code__", None) and inspect.unwrap(function).__code__.co_filename
    return source_among(text, kernel, {display_name(file): "".join(linecache.getlines(file))} if file else {})


def source_among(text: str, kernel: str, cells: Mapping[str, str]) -> Source:
    """The same, where the cells that it may stand in are known: name -> source."""
    where, first = TEXT, 1
    holding = [name for name, around in cells.items() if around.count(text) == 1]
    if text.count("\n") > 1 and holding:
        where, first = holding[-1], cells[holding[-1]].count("\n", 0, cells[holding[-1]].find(text)) + 1
    lines = tuple(Line(where, first + number, line) for number, line in enumerate(text.split("\n")))
    return Source(text, kernel, lines, (), {})


class _Pending(Pending):
    def command(self, folder: Path) -> list[str]:
        return [*super().command(folder)[:-2], str(CHILD), str(folder)]
