"""Compiles what a student wrote for the judge, each in a sandbox of its own: a Triton or Gluon kernel, or CUDA C++.

The child that ran the code says which kernels it launched. That claim counts only if each collected line stands in the
submission and the module is plain: imports of Triton, constants, and jit functions, so that importing it runs nothing.
CUDA C++ is never run here, but it may ``#include`` any file that its compiler can read: there is none of the course's.
"""

from __future__ import annotations

import ast
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flashkit.grading.plain_module import imported, not_plain
from flashkit.grading.sandbox import Limits, compiler_command, end, too_much
from flashkit.instruments import cuda_gate
from flashkit.instruments.compile_gate import ARCH, CPU_SECONDS, CompileResult, Pending
from flashkit.runtime.source import CONSTEXPRS, Line, Source
from flashkit.runtime.wire import writable

OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "enable_fp_fusion", "debug", "sanitize_overflow")
WATCH_SECONDS = 0.2
NONSENSE = (
    *(KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError),
    *(SyntaxError, RecursionError, MemoryError),
)  # what reading a forged claim may raise


class _CompiledApart(Pending):
    """A compilation inside a sandbox; whatever comes back that is no answer becomes "unavailable"."""

    def __init__(self, kernel: str, source: Source, request: dict[str, Any], limits: Limits):
        self._limits = limits
        super().__init__(kernel, request["arch"], source, request)
        threading.Thread(target=self._watched, daemon=True).start()

    def command(self, folder: Path) -> list[str]:
        return compiler_command(folder, self._limits)

    def _watched(self) -> None:
        """Ends a compilation that takes more memory than a submission may; nobody may be waiting for it yet."""
        while self._child.poll() is None:
            if too_much(self._child.pid, self._limits):
                end(self._child)
            time.sleep(WATCH_SECONDS)

    def _read(self) -> CompileResult:
        try:
            return super()._read()
        except (TypeError, KeyError, ValueError, AttributeError):
            return self._stopped("unavailable", "The compiler's answer cannot be read.")


class _CudaApart(_CompiledApart):
    def command(self, folder: Path) -> list[str]:
        *sandbox, child, folder = super().command(folder)
        return [*sandbox, str(Path(child).with_name(cuda_gate.CHILD.name)), folder]


def start_cuda(source: Source, arch: str, limits: Limits) -> Pending:
    """Starts compiling CUDA C++ text for ``arch`` ("90a" is sm_90a); ``source.name`` is its kernel."""
    try:
        return _CudaApart(source.name, source, cuda_gate.request(source.name, arch) | {"listing": True}, limits)
    except (OSError, ValueError) as error:
        result = CompileResult(source.name, "unavailable", arch=arch, error=type(error).__name__, message=str(error))
        return Pending.answered(result)


def start_kernel(
    claim: Mapping[str, Any], cells: Mapping[str, str], limits: Limits, arch: int = ARCH, laid_out: bool = False
) -> Pending:
    """Starts compiling what a child claims it launched. ``cells`` are the submission's cells: file name -> source.

    ``laid_out`` as in :func:`flashkit.instruments.compile_gate.start`.
    """
    name = writable(str(claim.get("name", "kernel"))[:80])
    try:
        if "source" not in claim:
            kind = "refused" if claim["kind"] == "refused" else "unavailable"
            told = {"error": str(claim["error"])[:80], "message": writable(str(claim["message"])[:400])}
            return Pending.answered(CompileResult(name, kind, **told))
        source = _source(claim["source"])
        problem = not_plain(source.text) or _foreign(source, cells)
        if problem:
            return Pending.answered(CompileResult(name, "unavailable", error="SourceError", message=problem))
        return _CompiledApart(name, source, {**_request(claim["request"], source, arch), "laid_out": laid_out}, limits)
    except NONSENSE:
        return Pending.answered(CompileResult(name, "unavailable", message="Its source could not be collected."))


def _source(claim: Mapping[str, Any]) -> Source:
    lines = tuple(None if line is None else Line(str(line[0]), int(line[1]), str(line[2])) for line in claim["lines"])
    return Source(str(claim["text"]), str(claim["name"]), lines, (), {})


def _request(claim: Mapping[str, Any], source: Source, arch: int) -> dict[str, Any]:
    """The compile request. Where packages lie, the architecture and how long it may take are the judge's to say.

    So are options that would change any of these, or read a file.
    """
    import triton

    return {
        "kernel": source.name,
        "types": dict(claim["types"]),
        "aligned": list(claim["aligned"]),
        "options": {name: value for name, value in dict(claim["options"]).items() if name in OPTIONS},
        "arch": arch,
        "cpu_seconds": CPU_SECONDS,
        "listing": True,
        "paths": [str(Path(triton.__file__).resolve().parents[1])],
        "torch_modules": sorted(name for name in imported(source.text) if name.split(".")[0] == "torch"),
        "only_triton": True,
    }


def _foreign(source: Source, cells: Mapping[str, str]) -> str:
    """Why this source is not the submission's own: every function's line must stand where the claim says."""
    known = {name: _lines(text) for name, text in cells.items()}
    texts = _lines(source.text.removesuffix("\n"))
    if len(texts) != len(source.lines):
        return "Its source is not the submission's."
    for text, line in zip(texts, source.lines, strict=True):
        if line is None:
            continue
        own = known.get(line.where, [])
        if not 1 <= line.lineno <= len(own) or own[line.lineno - 1] != line.text or text.strip() != line.text.strip():
            return "Its source is not the submission's."
    body = ast.parse(source.text).body
    if body[-1].lineno != len(texts) or not texts[-1].startswith(f"{CONSTEXPRS} = "):
        return "Its constants do not stand in its last line."
    written = {n for node in body if isinstance(node, ast.FunctionDef) for n in _span(node)}
    return "" if all(source.lines[n - 1] for n in written if texts[n - 1].strip()) else "Its source is not its own."


def _lines(text: str) -> list[str]:
    """As Python counts them: a form feed or one of Unicode's separators ends none."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _span(node: ast.FunctionDef) -> range:
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return range(first, node.end_lineno + 1)
