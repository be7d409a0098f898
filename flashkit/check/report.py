"""The report of a check: verdict first, then the named mistake, the evidence and the points; as text and as HTML."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from flashkit.check.cost import Cost
from flashkit.check.diagnose import Diagnosis, Observation
from flashkit.check.launch_options import Ignored
from flashkit.check.score import Bytes
from flashkit.exercises.contract import Exercise
from flashkit.runtime.beginner_errors import BLANK
from flashkit.runtime.call import Problem

SYMBOLS = {
    "right": "✓", "wrong": "✗", "crashed": "✗", "refused": "⊘", "will not compile": "△", "not judged": "?",
}  # fmt: skip
# The report's edge: blue for right and vermillion for wrong are told apart by every common kind of colour blindness,
# on light pages and dark ones; the headline's symbol says the same.
COLOURS = {"right": "#0072B2", "will not compile": "#8A5A00", "not judged": "#767676"}
WRONG_COLOUR = "#B34700"
PAGE = "background:var(--jp-layout-color0,#fff);color:var(--jp-content-font-color1,#1a1a1a)"  # JupyterLab's theme
INSET = "background:var(--jp-layout-color2,#eee);color:inherit"
WRAP = "white-space:pre-wrap;word-break:normal;overflow-wrap:anywhere"  # JupyterLab would break inside a name


@dataclass
class Report:
    """What check() found: ``points`` of ``out_of``, ``mistake`` (the named fault or ""), ``pending`` (not judged)."""

    exercise: Exercise
    observations: list[Observation]
    verdict: str
    problem: Problem | None
    diagnosis: Diagnosis
    place: str
    bytes: list[Bytes]
    compiled: list
    compile_problem: Problem | None
    parts: Mapping[str, bool | None]
    points: float
    public: bool = True
    cost: Cost | None = None
    code: Sequence[str] = ()  # what the compiled code is made of, or lacks
    ignored: Sequence[Ignored] = ()  # options that do not reach the launch

    @property
    def out_of(self) -> float:
        return float(self.exercise.points)

    @property
    def mistake(self) -> str:
        return self.diagnosis.name

    @property
    def pending(self) -> list[str]:
        """What this machine could not judge: never counted as a pass. A plain number leaves nothing open."""
        if "compiles" not in self.exercise.shares:
            return []
        if self.exercise.needs_gpu:
            return self._compiled_pending()
        missing = ["bf16, tf32 and races that only a GPU shows", "time on a GPU"]
        untried = self.compiled and self.parts["compiles"] is None
        return missing + (["compilation (no compiler here)"] if untried else [])

    def _compiled_pending(self) -> list[str]:
        missing = [] if self.parts["right"] is not None else [f"answers and time ({self.exercise.id}.gpu)"]
        untried = self.compiled and self.parts["compiles"] is None
        compiler = "CUDA compiler" if self.exercise.cuda else "compiler"
        return missing + ([f"compilation (no {compiler} here)"] if untried else [])

    # ---- the lines, shared by text and HTML -------------------------------------------------------------

    def headline(self) -> str:
        if self.exercise.needs_gpu and not self.observations:
            verdict = "answers not judged" if self.verdict == "not judged" else self.verdict
            return f"{SYMBOLS[self.verdict]} {self.exercise.id} {verdict}: {self.points:g} of {self.out_of:g} points"
        passed = sum(o.right for o in self.observations)
        cases = f"{passed} of {len(self.exercise.cases) if self.public else len(self.observations)}"
        kind = "public cases" if self.public else "cases"
        earned = f"{self.points:g} of {self.out_of:g} points"
        return f"{SYMBOLS[self.verdict]} {self.exercise.id} {self.verdict}: {cases} {kind} right, {earned}"

    def explanation(self) -> list[str]:
        """The mistake in one sentence, where it shows, and what to look at."""
        lines = []
        if self.verdict == "right":
            return [_passed(self.public, len(self.pending)), *(option.sentence() for option in self.ignored)]
        if self.verdict == "not judged":
            compiles = "It compiles. " if self.parts["compiles"] else ""
            return [f"{compiles}Whether its answers are right is only judged on a GPU."]
        if self.diagnosis.faults:
            lines.append(self.diagnosis.sentence())
        if self.problem is not None:
            lines.append(self.problem.sentence[0].upper() + self.problem.sentence[1:])
        elif not self.diagnosis.faults and self.verdict == "wrong":
            lines.append(self.diagnosis.sentence())
        if self.compile_problem is not None:
            lines += self._not_compiled()
        if self.place:
            lines.append(self.place[0].upper() + self.place[1:] + ".")
        lines += [f"Look at: {fault.hint}" for fault in self.diagnosis.faults[:1] if len(self.diagnosis.faults) == 1]
        return lines

    def _not_compiled(self) -> list[str]:
        """Why no compiler takes it; nothing where the run here has already stopped with the same sentence."""
        if self.problem is not None and self.problem.sentence == self.compile_problem.sentence:
            return []
        if self.compile_problem.sentence == BLANK:
            return [BLANK]
        if self.exercise.cuda is not None:
            prefix = "The CUDA compiler does not take it"
        elif self.exercise.gluon:
            prefix = "The compiler does not take it"
        else:
            prefix = "It runs here, but no GPU compiler takes it"
            prefix = "No GPU compiler takes it either" if self.verdict == "crashed" else prefix
        return [f"{prefix}: {self.compile_problem.sentence}"]

    def student_line(self) -> Problem | None:
        problem = self.problem if self.problem is not None and self.problem.lineno else self.compile_problem
        return problem if problem is not None and problem.lineno else None

    def evidence(self) -> list[str]:
        lines = []
        if self.bytes and self.parts["right"]:
            over = [row for row in self.bytes if not row.within]
            told = "; ".join(f"{r.tensor} {r.requested:,} B, budget {r.budget:,} B" for r in (over or self.bytes))
            how = "within budget" if not over else "over budget" if all(r.plausible for r in over) else "not plausible"
            lines.append(f"Bytes requested {how}: {told}.")
        lines += self.cost.lines if self.cost else []
        for c in self.compiled:
            if c.ok and not self.cost:
                lines.append(
                    f"Compiles for sm_{c.arch}: {c.kernel}, {c.registers} registers, {c.spills} B spilled, "
                    f"{c.shared} B shared."
                )
            elif c.kind in ("unavailable", "timeout"):
                lines.append(f"Compilation for sm_{c.arch} not judged: {c.message}")
        lines += self.code if self.parts["right"] is not False else []
        each = [(name, self.out_of * share, self.parts.get(name)) for name, share in self.exercise.shares.items()]
        if self.parts["right"] is not False:
            lines.append("Points: " + ", ".join(f"{name} {worth:g}{_mark(holds)}" for name, worth, holds in each) + ".")
        else:
            lines.append("Points: 0, because right answers come first.")
        if self.pending:
            lines[-1] += f" Not judged here: {', '.join(self.pending)}."
        return lines

    def failing(self) -> list[str]:
        """Failing cases with the seed that repeats them (public cases only: secret seeds are the teacher's)."""
        told = [
            o.case.describe() + (f" (seed {o.case.seed})" if self.public else "")
            for o in self.observations
            if not o.right
        ]
        return told[:4] + ([f"and {len(told) - 4} more"] if len(told) > 4 else [])

    # ---- renderings -------------------------------------------------------------------------------------

    def __str__(self) -> str:
        lines = [self.headline(), *self.explanation()]
        at = self.student_line()
        if at is not None:
            lines.append(f"  line {at.lineno}{' of ' + at.where if at.where else ''}:  {at.line.strip()}")
        lines += [f"  failing: {text}" for text in self.failing()]
        return "\n".join([*lines, *self.evidence()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        colour = COLOURS.get(self.verdict, WRONG_COLOUR)
        parts = [
            f'<div class="flashkit-report" role="group" aria-label="Result of {self.exercise.id}" '
            f'style="border-left:6px solid {colour};{PAGE};padding:.6em 1em;margin:.3em 0;'
            'font-family:sans-serif;line-height:1.45;max-width:60em">',
            f'<div style="font-weight:bold;font-size:1.1em">{html.escape(self.headline())}</div>',
        ]
        first, *rest = self.explanation() or [""]
        parts.append(f'<p style="margin:.5em 0;font-size:1.05em"><b>{_prose(first)}</b></p>')
        parts += [f'<p style="margin:.4em 0">{_prose(line)}</p>' for line in rest]
        at = self.student_line()
        if at is not None:
            parts.append(
                f'<pre style="{INSET};padding:.4em .6em;margin:.4em 0;{WRAP}">'
                f"line {at.lineno}{html.escape(' of ' + at.where if at.where else '')}:  "
                f"{html.escape(at.line.strip())}</pre>"
            )
        if at is not None and at.traceback:
            parts.append(f"<details><summary>Traceback</summary><pre>{html.escape(at.traceback)}</pre></details>")
        parts.append(self._error_map())
        if self.failing():
            items = "".join(f"<li>{html.escape(text)}</li>" for text in self.failing())
            parts.append(
                f"<details open><summary>Failing cases</summary><ul style='margin:.2em 0'>{items}</ul></details>"
            )
        parts += [f'<p style="margin:.3em 0;font-size:.9em">{html.escape(line)}</p>' for line in self.evidence()]
        return "".join([*parts, "</div>"])

    def _error_map(self) -> str:
        """Which elements of the first wrong output differ: rows by columns of one head, as a small picture in text."""
        wrong = next(
            (o for o in self.observations if not o.right and o.outcome.outputs and not o.outcome.problem), None
        )
        if wrong is None:
            return ""
        name, bad = next(
            ((n, b) for n, b in wrong.judge.disagreement(wrong.outcome.outputs).items() if b.any()), ("", None)
        )
        if bad is None or bad.ndim < 1:
            return ""
        while bad.ndim > 2:  # the first head with a difference
            bad = bad[int(np.argmax(bad.reshape(len(bad), -1).any(axis=1)))]
        bad = np.atleast_2d(bad)
        rows = "\n".join("".join("■" if x else "·" for x in row[:64]) for row in bad[:48])
        summary = f"Map of {name}: ■ differs, · right ({int(bad.sum())} of {bad.size} elements of this head)"
        return (
            f"<details><summary>{html.escape(summary)}</summary>"
            f'<pre aria-label="{html.escape(summary)}" style="line-height:1;{PAGE}">{rows}</pre>'
            "</details>"
        )


def _passed(public: bool, pending: int) -> str:
    if not public:
        return "All cases passed."
    if not pending:
        return "Public checks passed."
    return f"Public checks passed; {pending} item{'s are' if pending > 1 else ' is'} only judged on a GPU."


def _prose(line: str) -> str:
    """A sentence in HTML: what stands between backticks is code there, as in the chapters."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(line))


def _mark(holds: bool | None) -> str:
    return {True: " ✓", False: " ✗", None: " not judged"}[holds]
