"""An error as one sentence with the student's line, above a folded traceback: for interpreter and compiler alike."""

from __future__ import annotations

import html
import inspect
import linecache
import traceback
from dataclasses import dataclass
from itertools import groupby
from types import TracebackType

from flashkit.instruments.compile_gate import CompileResult
from flashkit.runtime.beginner_errors import Evidence, Said, fallback, say
from flashkit.runtime.source import Line, Source, display_name, is_installed


@dataclass(frozen=True)
class Explanation:
    """One sentence, the student's line (``where``: file or cell; "" and 0 when none is known), the full traceback."""

    sentence: str
    where: str = ""
    lineno: int = 0
    line: str = ""
    traceback: str = ""

    @property
    def place(self) -> str:
        return f"{self.where}, line {self.lineno}: {self.line.strip()}" if self.lineno else ""

    def text(self) -> str:
        """Plain text: the sentence, the line, the traceback indented below."""
        folded = "\n".join("    " + line for line in self.traceback.splitlines())
        return "\n".join(part for part in (self.sentence, self.place and f"  {self.place}", folded) if part)

    def _repr_html_(self) -> str:
        place = f"<pre>{html.escape(self.place)}</pre>" if self.place else ""
        full = f"<pre>{html.escape(self.traceback)}</pre>"
        folded = f"<details><summary>Full traceback</summary>{full}</details>" if self.traceback else ""
        return f"<p><strong>{html.escape(self.sentence)}</strong></p>{place}{folded}"


def explain(error: BaseException) -> Explanation:
    """What went wrong while a student's function ran, interpreted or not. Never raises."""
    chain = _chain(error)
    root, frame = chain[-1], _student_frame(chain)
    evidence = Evidence(type(root).__name__, _message(root), *frame)
    mistake = _launch_mistake(chain, evidence)
    if mistake:
        evidence = Evidence(mistake, "", _student_frame(chain[:1])[0])  # the line of the launch
    said = say(evidence) or Said(fallback(evidence))
    return _explanation(said, evidence.line, _folded(chain))


def explain_compile(result: CompileResult) -> Explanation:
    """Why the compiler did not take a kernel. Also for the compiler's own crashes and time limits."""
    if result.ok:
        return Explanation(f"`{result.kernel}` compiles for sm_{result.arch}.")
    line = Line(result.where, result.lineno, result.line) if result.lineno else None
    if result.kind in ("timeout", "unavailable"):
        return Explanation(
            f"Whether `{result.kernel}` compiles is not judged: {result.message}", traceback=result.traceback
        )
    evidence = Evidence(result.error, result.message, line, _function_around(result.source, line))
    said = say(evidence)
    if said is None and result.kind == "crashed":
        special = "warp_specialize" in (result.source.text if result.source else "")
        first = "leave out `warp_specialize`" if special else "simplify it step by step until it compiles"
        said = Said(f"Triton's compiler itself fails on `{result.kernel}` for sm_{result.arch}: {first}.")
    return _explanation(said or Said(fallback(evidence)), line, result.traceback)


def _explanation(said: Said, line: Line | None, full: str) -> Explanation:
    line = said.line or line or Line("", 0, "")
    return Explanation(said.sentence, line.where, line.lineno, line.text, full)


def _chain(error: BaseException) -> list[BaseException]:
    """The error and what caused it, outermost first: the interpreter wraps the original in its InterpreterError."""
    chain = [error]
    while (cause := chain[-1].__cause__) is not None and cause not in chain:
        chain.append(cause)
    return chain


def _message(error: BaseException) -> str:
    message = getattr(error, "error_message", None) or str(error)
    return str(error.args[0]) if isinstance(error, KeyError) and error.args else str(message)


def _frames(error: BaseException) -> list[TracebackType]:
    frames, current = [], error.__traceback__
    while current is not None:
        frames.append(current)
        current = current.tb_next
    return frames


def _student_frame(chain: list[BaseException]) -> tuple[Line | None, tuple[Line, ...]]:
    """The innermost line of the student's, and the lines of the function it is in."""
    root = chain[-1]
    if isinstance(root, SyntaxError) and root.lineno and not is_installed(root.filename):
        return Line(display_name(root.filename or ""), root.lineno, (root.text or "").rstrip("\n")), ()
    for error in reversed(chain):
        for frame in reversed(_frames(error)):
            filename = frame.tb_frame.f_code.co_filename
            if not is_installed(filename):
                text = linecache.getline(filename, frame.tb_lineno).rstrip("\n")
                line = Line(display_name(filename), frame.tb_lineno, text)
                return line, _function_lines(frame)
    return None, ()


def _function_lines(frame: TracebackType) -> tuple[Line, ...]:
    """The function a frame runs, with its decorators, as the student wrote it; () outside functions."""
    code = frame.tb_frame.f_code
    lines = linecache.getlines(code.co_filename)
    first = code.co_firstlineno
    if code.co_name == "<module>" or not 1 <= first <= len(lines):
        return ()
    while first > 1 and lines[first - 2].lstrip().startswith("@"):  # the interpreter compiles from `def` on
        first -= 1
    where = display_name(code.co_filename)
    block = inspect.getblock(lines[first - 1 :])
    return tuple(Line(where, first + i, text.rstrip("\n")) for i, text in enumerate(block))


def _function_around(source: Source | None, line: Line | None) -> tuple[Line, ...]:
    """The lines of the collected function that holds ``line``."""
    if source is None or line is None or line not in source.lines:
        return ()
    first = last = source.lines.index(line)
    while first > 0 and source.lines[first - 1] is not None:
        first -= 1
    while last + 1 < len(source.lines) and source.lines[last + 1] is not None:
        last += 1
    return tuple(known for known in source.lines[first : last + 1] if known)


def _launch_mistake(chain: list[BaseException], evidence: Evidence) -> str:
    """Mistakes that only the frames tell: a kernel called without a grid, a grid that is no tuple."""
    owners = [
        (type(frame.tb_frame.f_locals.get("self")).__name__, frame.tb_frame)
        for error in chain
        for frame in _frames(error)
        if frame.tb_frame.f_code.co_name in ("__call__", "run")
    ]
    names = [name for name, _ in owners]
    if "InterpretedFunction" in names and "GridExecutor" not in names:
        kernel = owners[names.index("InterpretedFunction")][1].f_locals["self"]
        return f"KernelCalledWithoutGrid: {kernel.__name__}"
    last = _frames(chain[-1])[-1:] or [None]
    if last[0] is not None and type(last[0].tb_frame.f_locals.get("self")).__name__ == "GridExecutor":
        if "len()" in evidence.message or "grid" in evidence.message or "cannot be interpreted" in evidence.message:
            return "BadGrid"
    return ""


def _folded(chain: list[BaseException]) -> str:
    """The traceback, original error first, with runs of other people's frames folded into one line each."""
    parts = []
    for error in reversed(chain):
        parts.append("Traceback (most recent call last):")
        entries = traceback.extract_tb(error.__traceback__)
        for installed, group in groupby(entries, key=lambda entry: is_installed(entry.filename)):
            frames = list(group)
            if installed:
                parts.append(f"  … {len(frames)} frame{'s' * (len(frames) > 1)} of {_owner(frames[0].filename)}")
            else:
                parts += ["".join(traceback.format_list([frame])).rstrip("\n") for frame in frames]
        parts += ["".join(traceback.format_exception_only(error)).rstrip("\n"), ""]
    return "\n".join(parts).rstrip("\n")


def _owner(filename: str) -> str:
    """The package a file belongs to."""
    for name in ("triton", "torch", "numpy", "flashkit"):
        if f"/{name}/" in filename:
            return name
    return "Python"
