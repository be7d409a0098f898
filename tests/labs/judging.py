"""Judge planted faults and correct variants as check() does, all but the compilation, and say how they were caught.

A mutant is *caught* if it is not judged right, or if its launch ignores an option; *named* if the report names its
fault; *misnamed* if the report names another mistake, alone or in "one of". With two faults the report may name
nothing, or list one or both of them in "one of"; a single name is allowed only for the one that stopped the kernel,
where the other could not show yet: then the name comes from the meter, whose line the student sees, and the other is
found by the next check.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from flashkit import exercises
from flashkit.check import conclude, observe
from flashkit.check.report import Report
from flashkit.runtime.runner import run
from tests.labs.kernels import Patch, load
from tests.labs.mutant import Mutant

SECONDS = 300.0  # a call's limit: what is slow on a busy machine is not a planted fault


@dataclass(frozen=True)
class Judgement:
    """How one kernel fared: the verdict, what caught it, the mistakes the report names, and its bytes."""

    verdict: str
    caught_by: str
    named: tuple[str, ...]
    together: bool  # all of the named, not one of them
    over_budget: tuple[str, ...]
    text: str

    @property
    def caught(self) -> bool:
        return self.verdict != "right" or self.caught_by == "launch"


def judge(exercise_id: str, base: str, patch: Patch = (), seed: int | None = None) -> Judgement:
    """Run a kernel on the public cases, or on the secret ones of ``seed``."""
    exercise, function = replace(exercises.get(exercise_id), seconds=SECONDS), load(exercise_id, base, patch)
    cases = exercise.cases if seed is None else exercise.draw(seed)
    observations, _ = observe(exercise, function, cases, compile=False)

    def again(case, **options):
        return run(function, exercise.call(case), show=False, **options)

    report = conclude(exercise, observations, [], again, public=seed is None)
    named = tuple(fault.name for fault in report.diagnosis.faults)
    named += tuple(f"{option.option}-ignored" for option in report.ignored)  # right answers, and yet a mistake
    over = tuple(row.tensor for row in report.bytes if not row.within)
    return Judgement(report.verdict, _caught_by(report), named, report.diagnosis.together, over, str(report))


def judge_mutant(mutant: Mutant, seed: int | None = None) -> Judgement:
    return judge(mutant.exercise, mutant.base, mutant.patch, seed)


def _caught_by(report: Report) -> str:
    if report.verdict == "right":
        return "launch" if report.ignored else ""
    if report.problem is None:
        return "compare"
    return f"meter: {report.problem.finding.kind}" if report.problem.finding else report.verdict


def is_named(mutant: Mutant, judgement: Judgement) -> bool:
    return judgement.named == mutant.faults


def is_misnamed(mutant: Mutant, judgement: Judgement) -> bool:
    """Does the report point at something that is not there, or (two faults) at one as if it were all?"""
    if not judgement.named:
        return False
    strangers = set(judgement.named) - set(mutant.faults)
    if len(mutant.faults) == 1:
        return mutant.fault not in judgement.named or (len(judgement.named) == 1 and bool(strangers))
    alone = len(judgement.named) == 1 and not judgement.caught_by.startswith("meter")
    return bool(strangers) or alone
