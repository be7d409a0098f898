"""The report of an exercise whose answer is a table of launch choices: right first, then a verdict an architecture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields

from flashkit.check.choices import Choice, Compiler, Kernel, Launched, compile_launched, judge, print_nothing
from flashkit.check.diagnose import Observation
from flashkit.check.report import Report
from flashkit.check.score import points
from flashkit.exercises.contract import Exercise
from flashkit.instruments import compile_gate


@dataclass(repr=False)  # a Report shows itself as text
class TunedReport(Report):
    """A :class:`Report` with one :class:`Choice` an architecture; none where the answers were not right."""

    choices: Sequence[Choice] = ()

    @property
    def pending(self) -> list[str]:
        return [f"{c.part} (its choice)" for c in self.choices if c.holds is None] + ["time on a GPU"]

    def headline(self) -> str:
        """The answers may be right and a choice not hold."""
        missed = sum(c.holds is False for c in self.choices)
        if self.verdict != "right" or not missed:
            return super().headline()
        earned = f"{self.points:g} of {self.out_of:g} points"
        return f"△ {self.exercise.id} right, but {missed} of {len(self.choices)} choices do not hold: {earned}"

    def explanation(self) -> list[str]:
        if self.verdict != "right":
            return super().explanation()
        held = sum(c.holds is True for c in self.choices)
        return [
            f"The answers are right; {held} of {len(self.choices)} choices hold, compiled and predicted without a GPU."
        ]

    def evidence(self) -> list[str]:
        return [*(str(choice) for choice in self.choices), *super().evidence()]


def report(
    exercise: Exercise,
    plain: Report,
    launched: Mapping[int, Sequence[Kernel]],
    compiler: Compiler = compile_launched,
    show: Callable[[int, int], None] = print_nothing,
) -> TunedReport:
    """The report from ``plain``, which judged the answers, and from what was launched for each architecture."""
    choices = judge(exercise.tuning, launched, compiler, show) if plain.verdict == "right" else []
    held = {choice.part: choice.holds for choice in choices}
    parts = {**plain.parts, **{name: held.get(name) for name in exercise.shares}}
    same = {f.name: getattr(plain, f.name) for f in fields(Report)}
    return TunedReport(
        **{**same, "parts": parts, "points": points(exercise.points, parts, exercise.shares)}, choices=choices
    )


def launched(observations: Sequence[Observation]) -> dict[int, list[Launched]]:
    """The kernels that each architecture's case launched in this process."""
    return {
        o.case.options["arch"]: [Launched(launch) for launch in compile_gate.distinct(o.outcome.launches)]
        for o in observations
    }


def progress_line(done: int, total: int, what: str = "architectures") -> None:
    """A line on stdout that says why this takes longer than other checks; it is gone when the report comes."""
    text = f"compiling {total} {what} (slow the first time only): {done} done"
    print(f"\r{text if done < total else ' ' * len(text)}", end="\r" if done == total else "", flush=True)
