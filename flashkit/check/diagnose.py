"""Which mistake is it? Compare what came with what each named mistake would give, on every case.

A mistake is named only if it explains every case, failing and passing, and no other mistake does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from flashkit.check.compare import Judge
from flashkit.exercises.contract import Case, Exercise, Fault
from flashkit.runtime.call import Outcome

MATCH = {"fp32": 3e-4, "fp16": 5e-3, "number": 1e-9}  # relative slack of a match: roundings differ
EXPLAINED = 0.25  # a mistake must leave at most this share of the error unexplained


@dataclass
class Observation:
    """One case as it went: the right answer with its tolerance, and what came."""

    case: Case
    judge: Judge
    outcome: Outcome

    def __post_init__(self):
        self.outcome = self.judge.simulate(self.outcome)
        if self.outcome.outputs:
            self.outcome = replace(self.outcome, outputs=self.judge.derive(self.outcome.outputs))

    @property
    def stopped(self) -> str:
        """The tensor whose end a kernel was stopped at, or ""."""
        finding = self.outcome.problem.finding if self.outcome.problem else None
        return finding.tensor if finding is not None and finding.kind == "outside" else ""

    @property
    def crashed(self) -> bool:
        """Did the kernel stop with an error of its own? Products of unlike shapes do, in some tiles only."""
        problem = self.outcome.problem
        return problem is not None and problem.verdict == "crashed" and problem.finding is None

    @property
    def right(self) -> bool:
        return self.outcome.problem is None and self.judge.agrees(self.outcome.outputs)

    @property
    def comparable(self) -> bool:
        return bool(self.outcome.outputs) or bool(self.stopped) or self.crashed


@dataclass(frozen=True)
class Diagnosis:
    """faults: the named mistakes that fit (one: named; more: "one of", or all of them if ``together``).

    Empty: several, or unknown.
    """

    faults: tuple[Fault, ...] = ()
    together: bool = False

    @property
    def name(self) -> str:
        return self.faults[0].name if len(self.faults) == 1 else ""

    def sentence(self) -> str:
        if not self.faults:
            return (
                "No single mistake that has a name explains every case: there may be several, or one not in the bank."
            )
        if len(self.faults) == 1:
            return f"Your output is what you get when {self.faults[0].sentence}."
        if self.together:
            return "There is more than one mistake: " + "; and ".join(fault.sentence for fault in self.faults) + "."
        return "It is one of these: " + "; or ".join(fault.sentence for fault in self.faults) + "."


def diagnose(exercise: Exercise, observations: list[Observation], rerun: Callable[[Case], Outcome]) -> Diagnosis:
    """Name the mistake behind failing observations; ``rerun`` repeats a case with undefined lanes read as 0."""
    undefined = [o for o in observations if not o.right and o.outcome.undefined and not o.stopped]
    again = {id(o): replace(o, outcome=rerun(o.case)) for o in undefined}
    if not any(_changed(o.outcome, again[id(o)].outcome) for o in undefined):
        return Diagnosis(_named(exercise, observations))
    missing = _known(exercise, "other-missing")
    observations = [again.get(id(o), o) for o in observations]
    if all(o.right for o in observations):
        return Diagnosis(missing)
    rest = _named(exercise, observations)
    return Diagnosis(missing + rest, together=True) if len(rest) == 1 else Diagnosis()


def _named(exercise: Exercise, observations: list[Observation]) -> tuple[Fault, ...]:
    """What fits every case goes before what the meter's findings suggest, which says nothing of the right cases."""
    if exercise.named is not None:
        names = exercise.named([(o.case, o.outcome) for o in observations])
        return tuple(fault for fault in exercise.faults if fault.name in names)
    fits = tuple(_matching(exercise, observations))
    return fits or _known(exercise, _meter_names(exercise, [o for o in observations if not o.right]))


def _changed(before: Outcome, after: Outcome) -> bool:
    """Do the outputs depend on what undefined lanes hold?"""
    return any(not np.array_equal(x, after.outputs.get(name), equal_nan=True) for name, x in before.outputs.items())


def _known(exercise: Exercise, name: str) -> tuple[Fault, ...]:
    return tuple(fault for fault in exercise.faults if fault.name == name)


def _meter_names(exercise: Exercise, failing: list[Observation]) -> str:
    """The one mistake that the meter's findings stand for, if every failing case has a finding.

    A layout can hide which coordinate ran over (the row past a head's end is the next head's first), so cases
    that were stopped at the same source line share the name that one of them gives.
    """
    names: dict[int | None, set[str]] = {}
    for o in failing:
        finding = o.outcome.problem.finding if o.outcome.problem else None
        if finding is None:
            return ""
        name = exercise.meter_says(o.case, finding)
        if finding.kind == "unwritten" and not name:  # its coordinates are sure: another mistake
            return ""
        names.setdefault(finding.lineno, set()).add(name)
    given = [group - {""} for group in names.values()]
    return given[0].copy().pop() if all(len(g) == 1 for g in given) and len(set.union(*given)) == 1 else ""


def _matching(exercise: Exercise, observations: list[Observation]) -> list[Fault]:
    if not all(o.comparable for o in observations):
        return []
    cheap_first = sorted(observations, key=lambda o: (o.right, _work(o.case)))
    with np.errstate(invalid="ignore", over="ignore"):  # inf - inf where both overflow
        fits = [f for f in exercise.faults if any(_explains(exercise, v, cheap_first) for v in f.variants)]
    return fits if len(fits) <= 3 else []


def _work(case: Case) -> int:
    return int(np.prod([n for name, n in case.sizes.items() if name not in ("d", "d_v")]))


def _explains(exercise: Exercise, variant, observations: list[Observation]) -> bool:
    return all(_fits(o, exercise.wrong(o.case, variant)) for o in observations)


def _fits(o: Observation, predicted) -> bool:
    """Does the mistake predict this case: the same stop, the same wrong output, or a right one?"""
    if o.stopped or "stopped" in predicted:
        return o.stopped in predicted.get("stopped", ())
    if o.crashed or "crashed" in predicted:
        return o.crashed and "crashed" in predicted
    loose = MATCH[o.case.dtype]
    if o.right:
        return o.judge.agrees(predicted, loose=loose)
    return (
        o.judge.agrees(o.outcome.outputs, predicted, loose)
        and not o.judge.agrees(predicted)
        and _explains_most(o, predicted)
    )


def _explains_most(o: Observation, predicted) -> bool:
    """Is what came much nearer to the prediction than to the right answer? Else any small error would fit.

    Where the right answer is infinite there is no distance to it: a match is all that can be asked for there.
    """
    for name, came in o.outcome.outputs.items():
        right = o.judge.reference[name]
        error, rest = _largest(came - right), _largest(np.where(np.isfinite(right), came - predicted[name], 0))
        if rest > max(EXPLAINED * error, float(np.max(o.judge.allowed[name], initial=0.0))):
            return False
    return True


def _largest(x: np.ndarray) -> float:
    return float(np.max(np.abs(x), initial=0.0, where=np.isfinite(x)))


# ---- where it starts ------------------------------------------------------------------------------------


def where(exercise: Exercise, observations: list[Observation], run: Callable[[Case], Outcome], judge) -> str:
    """The first wrong row, and the first wrong key tile as a run with V = identity shows it (its output is P)."""
    wrong = [o for o in observations if not o.right and o.outcome.outputs]
    if not wrong:
        return ""
    o = min(wrong, key=lambda o: _work(o.case))
    difference = o.judge.worst(o.outcome.outputs)
    if difference is None:
        return ""
    text = f"first seen in case '{o.case.why}', {difference.sentence()}"
    probe = exercise.probe(o.case)
    if probe is None or difference.output != "o":
        return text
    seen = Observation(probe, judge(exercise, probe), run(probe))
    if seen.outcome.problem or "o" not in seen.outcome.outputs:
        return text
    bad = seen.judge.disagreement(seen.outcome.outputs)["o"]
    if not bad.any():
        return text
    *row, _ = np.argwhere(bad)[0]
    block = o.case.options["block_k"]
    tiles = sorted({int(key) // block for key in np.flatnonzero(bad[tuple(row)]) if key < o.case.sizes["N_k"]})
    return f"{text}; in row {row[-1]} the weights are wrong in key tile{'s' * (len(tiles) > 1)} {_list(tiles)}"


def _list(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:6])) + (" ..." if len(numbers) > 6 else "")
