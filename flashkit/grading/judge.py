"""Judges a submission from outside: sends calls into the sandbox, compares what comes back, names the mistake.

Oracle, seeds and comparison stay here. Traffic and findings are the child's claim: they cost points, or earn the bytes'
share, only beside right outputs and within what any right kernel must request.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from flashkit.check import choice_report, conclude, cuda, gluon
from flashkit.check.compare import Judge
from flashkit.check.compare import judge as reference_of
from flashkit.check.diagnose import Observation
from flashkit.check.report import Report
from flashkit.exercises.contract import SHARES, Case, Exercise
from flashkit.grading import claimed_kernels, compile_apart, seeds
from flashkit.grading.claimed_kernels import Claimed
from flashkit.grading.room import Child, CodeCell, Room
from flashkit.grading.settings import Settings
from flashkit.instruments import cuda_gate
from flashkit.instruments.compile_gate import Pending
from flashkit.runtime.call import Outcome, Problem

DRAWS = 1  # sets of secret cases an exercise
_references: dict[tuple[str, Case], Judge] = {}


@dataclass
class Judged:
    """What one exercise earned. ``pending``: points that could not be judged here. ``seeds`` are the teacher's."""

    report: Report
    pending: float
    seeds: list[int]
    seconds: float
    student_seconds: float


@dataclass
class Examiner:
    """Judges one submission's exercises in turn, in one sandbox where all goes well."""

    cells: Sequence[CodeCell]
    settings: Settings
    master: bytes
    room: Room = field(init=False)

    def __post_init__(self):
        self.room = Room(self.cells, self.settings)

    def __enter__(self) -> Examiner:
        return self

    def __exit__(self, *error) -> None:
        self.room.close()

    def examine(self, exercise: Exercise, upto: int) -> Callable[[], Judged]:
        """Runs the cells before ``upto``, then the exercise's public and secret cases.

        What is returned gives the judgement when called: a right kernel's compilation runs on beside the next exercise.
        """
        began, started = time.monotonic(), self.room.start_seconds
        drawn = [seeds.case_seed(self.master, exercise.id, index) for index in range(DRAWS)]
        cases = exercise.cases + tuple(case for seed in drawn for case in exercise.draw(seed))
        if exercise.shares == SHARES:
            exercise = replace(exercise, shares=self.settings.shares)
        child = self.room.enter(upto, exercise.function)
        observe = self._observe_text if exercise.cuda else self._note if exercise.gluon else self._observe
        try:
            observations, pending = observe(exercise, child, cases)
            right = all(o.right for o in observations)
            report = None if right else self._conclude(exercise, child, observations, pending)
        finally:
            self.room.leave(child)
        seconds = time.monotonic() - began - (self.room.start_seconds - started)

        def judged() -> Judged:
            final = report or self._conclude(exercise, child, observations, pending)
            return Judged(final, _open_points(final), drawn, seconds, child.student_seconds)

        return judged

    def _observe(self, exercise: Exercise, child: Child, cases: Sequence[Case]) -> tuple[list, list[Pending]]:
        """Half precision first, whose kernel compiles soonest, then in order until a case leaves no hope."""
        until = time.monotonic() + self.settings.seconds_per_exercise
        observations, pending = [], []
        wanted, choices = "compiles" in exercise.shares, exercise.tuning is not None
        launches = bool(exercise.launch_options)
        for case in sorted(cases, key=lambda case: case.dtype != "fp16"):
            child.ask(exercise.call(case), kernels=choices or launches or wanted and not pending)
            reference = _reference(exercise, case)  # while the child works
            outcome = child.answer()
            if time.monotonic() > until and not outcome.problem:
                limit = f"All cases together took more than {self.settings.seconds_per_exercise:g} s."
                outcome = Outcome(problem=Problem("crashed", limit))
            outcome = replace(outcome, launches=list(child.kernels)) if launches else outcome
            observations.append(Observation(case, reference, outcome))
            if wanted and not pending:
                pending = self._compile(child)
            if choices and case in exercise.cases:
                child.claims[case.options["arch"]] = [Claimed(c) for c in child.kernels if isinstance(c, Mapping)]
            if outcome.problem and not outcome.problem.finding and outcome.problem.verdict in ("crashed", "refused"):
                break
        return sorted(observations, key=lambda o: cases.index(o.case)), pending

    def _observe_text(self, exercise: Exercise, child: Child, cases: Sequence[Case]) -> tuple[list, list[Pending]]:
        """An answer that is CUDA C++: the text is asked for and compiled; whether it is right has a cell of its own."""
        child.ask(exercise.call(cases[0]))
        outcome, kernel = child.answer(), exercise.cuda
        if not outcome.problem:
            source = cuda_gate.source_among(outcome.texts["source"], kernel.name, self._sources())
            outcome.problem = cuda.problem_of(outcome, source)
        if outcome.problem:
            return [Observation(cases[0], _reference(exercise, cases[0]), outcome)], []
        return [], [compile_apart.start_cuda(source, arch, self.settings.limits) for arch in kernel.archs]

    def _note(self, exercise: Exercise, child: Child, cases: Sequence[Case]) -> tuple[list, list[Pending]]:
        """A Gluon kernel: what it would be launched with is compiled; whether it is right has a cell of its own."""
        child.ask(gluon.dry_call(exercise), kernels=True)
        outcome = child.answer()
        if outcome.problem:
            return [Observation(cases[0], _reference(exercise, cases[0]), outcome)], []
        return [], self._compile(child)

    def _compile(self, child: Child) -> list[Pending]:
        claims = [claim for claim in child.kernels if isinstance(claim, Mapping)]
        return [compile_apart.start_kernel(claim, self._sources(), self.settings.limits) for claim in claims]

    def _sources(self) -> dict[str, str]:
        return {cell.name: cell.source for cell in self.cells}

    def _conclude(self, exercise: Exercise, child: Child, observations, pending) -> Report:
        def again(case: Case, undefined: float | None = 0.0) -> Outcome:
            child.ask(exercise.call(case), undefined=undefined is not None)
            return child.answer()

        try:
            return self._with_choices(child, conclude(exercise, observations, pending, again, public=False))
        except (ValueError, TypeError, IndexError, AttributeError, KeyError):
            # A finding that no meter writes. Without findings, a wrong answer is still a wrong answer.
            plain = [replace(o, outcome=_without_findings(o.outcome)) for o in observations]
            return self._with_choices(child, conclude(exercise, plain, pending, again, public=False))

    def _with_choices(self, child: Child, report: Report) -> Report:
        """The report with a verdict on each launch choice, where these are what the exercise is about."""
        if report.exercise.tuning is None:
            return report
        compiler = claimed_kernels.compiler(self._sources(), self.settings.limits)
        return choice_report.report(report.exercise, report, child.claims, compiler)


def _reference(exercise: Exercise, case: Case) -> Judge:
    """The right answer and tolerance of a case, computed once for a whole class."""
    key = (exercise.id, case)
    if key not in _references:
        _references[key] = reference_of(exercise, case)
    return _references[key]


def _open_points(report: Report) -> float:
    """Points that hang on a compilation which could not be tried, unless the answer is known to be wrong."""
    parts = [name for name, holds in report.parts.items() if holds is None and report.parts["right"] is not False]
    return round(sum(report.exercise.shares.get(name, 0.0) for name in parts) * report.exercise.points, 4)


def _without_findings(outcome: Outcome) -> Outcome:
    problem = outcome.problem and replace(outcome.problem, finding=None)
    return replace(outcome, problem=problem, findings=[], undefined=[])
