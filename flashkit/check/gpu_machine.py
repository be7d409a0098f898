"""check() on a machine with a GPU: two children, since Triton is either interpreted or compiled in a process.

The first judges the kernel in the interpreter, as on any machine. Only what it finds right is launched compiled, in
the second, under a deadline: a kernel that leaves its tensors would end this process's CUDA context.
"""

from __future__ import annotations

import html
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from flashkit.check.cost import Target
from flashkit.check.timing import TimeReport
from flashkit.exercises.contract import Exercise
from flashkit.runtime.source import Source, SourceError, collect

SECONDS = {  # for a child: it starts, and interprets or compiles all cases; the timer may have a whole grid to compile
    "interpreted": 120,
    "compiled": 240,
    "timed": 300,
}
SILENT = f"Compiled, it ended its process or gave no answer within {SECONDS['compiled']} s."


@dataclass
class ChildReport:
    """A report that was made in a child: what :class:`flashkit.check.report.Report` says, as plain data."""

    verdict: str
    mistake: str
    points: float
    out_of: float
    pending: list[str]
    text: str
    html: str = field(repr=False, default="")
    predicted: float | None = None  # seconds of the exercise's large call

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.html


def check_on_gpu(id: str, function: Callable, out_of: float, target: Target) -> ChildReport:
    """Judge ``function`` interpreted, then, if it is right, compiled on this GPU."""
    try:
        source = _collected(function)
    except SourceError as error:
        return _not_judged(out_of, f"? {id} not judged: {error}")
    with _asking(id, source, target) as ask:
        told = ask("interpreted")
        if told is None:
            return _not_judged(
                out_of, f"? {id} not judged: the interpreter gave no answer within {SECONDS['interpreted']} s."
            )
        report = ChildReport(**told)
        right = report.verdict == "right"
        return _with_gpu(report, ask("compiled")) if right else report


def time_on_gpu(exercise: Exercise, function: Callable, target: Target) -> TimeReport:
    """Judge the grade cell ``<id>.gpu``: only what both other children find right is timed."""
    try:
        source = _collected(function)
    except SourceError as error:
        return TimeReport(exercise, why=str(error).rstrip("."))
    with _asking(exercise.id, source, target) as ask:
        first = {"verdict": "right"} if exercise.gluon else ask("interpreted")  # no interpreter takes Gluon
        if first is None:
            return TimeReport(exercise, why=f"the interpreter gave no answer within {SECONDS['interpreted']} s")
        if first["verdict"] != "right":
            return TimeReport(exercise, told=f"{exercise.id} is {first['verdict']}, and only what is right is timed")
        answers = ask("compiled") or {"right": False, "sentence": SILENT}
        if not answers["right"]:
            return TimeReport(exercise, told=answers["sentence"].rstrip("."))
        timing = ask("timed") or {"why": f"its timing gave no answer within {SECONDS['timed']} s"}
        return TimeReport(exercise, **timing)


def _collected(function: Callable) -> Source:
    """The function as a module of its own. Raises SourceError, also for a global that no text can stand for."""
    source = collect(function)
    for name, kind in source.missing.items():
        raise SourceError(f"`{name}` is of type {kind}, which no other process can be given: make it in a function.")
    return source


@contextmanager
def _asking(id: str, source: Source, target: Target) -> Iterator[Callable[[str], dict | None]]:
    """What asks a child, HOW it shall judge: see :func:`_ask`."""
    with tempfile.TemporaryDirectory(prefix="flashkit-check-") as folder:
        module = Path(folder) / "answer.py"
        module.write_text(source.text)
        yield lambda how: _ask(how, id, module, source.name, target)


def _ask(how: str, id: str, module: Path, name: str, target: Target) -> dict | None:
    """What the child ``python -m flashkit.check.child`` answers, or None if it died or took too long."""
    environment = dict(os.environ)
    if how == "interpreted":
        environment |= {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    answer = module.with_suffix(f".{how}.json")
    command = [sys.executable, "-m", "flashkit.check.child", how, id, str(module), name, str(answer)]
    command += [str(target.arch), target.gpu]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), os.getenv("PYTHONPATH")]))
    try:
        subprocess.run(command, env=environment, timeout=SECONDS[how], stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return None
    return json.loads(answer.read_text()) if answer.exists() else None


def _with_gpu(report: ChildReport, told: dict | None) -> ChildReport:
    """The report with what the GPU said; an answer that is wrong there is wrong."""
    if told is None:
        told = {"right": False, "sentence": SILENT}
    if told["right"]:
        report.pending = [item for item in report.pending if "time" in item and not told.get("measured")]
    else:
        report.verdict, report.points = "wrong", 0.0
        for told_right, told_wrong in (("✓ ", "✗ "), (" right: ", " wrong on this GPU: ")):
            report.text = report.text.replace(told_right, told_wrong, 1)
            report.html = report.html.replace(told_right, told_wrong, 1)
    sentence = told["sentence"] + _beside(report.predicted, told.get("measured"))
    report.text += f"\nOn this GPU: {sentence}"
    report.html += f"<p><b>On this GPU:</b> {html.escape(sentence)}</p>"
    return report


def _beside(predicted: float | None, measured: float | None) -> str:
    """The measured time of the large call, and how far the prediction is from it."""
    if not measured:
        return ""
    ratio = f"; predicted / measured {predicted / measured:.2f}" if predicted else ""
    return f" Measured time: {measured * 1e3:.3g} ms{ratio}."


def _not_judged(out_of: float, text: str) -> ChildReport:
    return ChildReport("not judged", "", 0.0, out_of, ["everything"], text, f"<p>{html.escape(text)}</p>")
