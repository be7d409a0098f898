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


@dataclass
class Observation:
    """One case as it went: the right answer with its tolerance, and what came."""

    case: Case
    judge: Judge
    outcome: Outcome

    @property
    def stopped(self) -> str:
        """The tensor whose end a kernel was stopped at, or ""."""
        finding = self.outcome.problem.finding if self.outcome.problem else None
        return finding.tensor if finding is not None and finding.kind == "outside" else ""

    @property
    def right(self) -> bool:
        return self.outcome.problem is None and self.judge.agrees(self.outcome.outputs)

    @property
    def comparable(self) -> bool:
        return bool(self.outcome.outputs) or bool(self.stopped)


@dataclass(frozen=True)
class Diagnosis:
    """faults: the named mistakes that fit (one: named; two or three: "one of"); empty: several, or unknown."""

    faults: tuple[Fault, ...] = ()

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
        return "It is one of these: " + "; or ".join(fault.sentence for fault in self.faults) + "."


def diagnose(exercise: Exercise, observations: list[Observation], rerun: Callable[[Case], Outcome]) -> Diagnosis:
    """Name the mistake behind failing observations; ``rerun`` repeats a case with undefined lanes read as 0."""
    failing = [o for o in observations if not o.right]
    undefined = [o for o in failing if o.outcome.undefined and not o.stopped]
    if undefined:
        again = {id(o): replace(o, outcome=rerun(o.case)) for o in undefined}
        observations = [again.get(id(o), o) for o in observations]
        if all(o.right for o in observations):
            return _known(exercise, "other-missing")
        failing = [o for o in observations if not o.right]
    said = _meter_names(exercise, failing)
    return _known(exercise, said) if said else Diagnosis(tuple(_matching(exercise, observations)))


def _known(exercise: Exercise, name: str) -> Diagnosis:
    return Diagnosis(tuple(fault for fault in exercise.faults if fault.name == name))


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
        names.setdefault(finding.lineno, set()).add(exercise.meter_says(o.case, finding))
    given = [group - {""} for group in names.values()]
    return given[0].copy().pop() if all(len(g) == 1 for g in given) and len(set.union(*given)) == 1 else ""


def _matching(exercise: Exercise, observations: list[Observation]) -> list[Fault]:
    if not all(o.comparable for o in observations):
        return []
    cheap_first = sorted(observations, key=lambda o: (o.right, _work(o.case)))
    fits = [
        fault for fault in exercise.faults if any(_explains(exercise, fault, v, cheap_first) for v in fault.variants)
    ]
    exact = [fault for fault in fits if not fault.loose]
    return (exact or fits) if len(exact or fits) <= 3 else []


def _work(case: Case) -> int:
    return int(np.prod([n for name, n in case.sizes.items() if name not in ("d", "d_v")]))


def _explains(exercise: Exercise, fault: Fault, variant, observations: list[Observation]) -> bool:
    return all(_fits(o, exercise.wrong(o.case, variant), fault.loose) for o in observations)


def _fits(o: Observation, predicted, loose: float) -> bool:
    """Does the mistake predict this case: the same stop, the same wrong output, or a right one?"""
    if o.stopped or "stopped" in predicted:
        return o.stopped == predicted.get("stopped", "")
    loose = max(loose, MATCH[o.case.dtype])
    if o.right:
        return o.judge.agrees(predicted, loose=loose)
    return o.judge.agrees(o.outcome.outputs, predicted, loose) and not o.judge.agrees(predicted)


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
    outcome, truth = run(probe), judge(exercise, probe)
    if outcome.problem or "o" not in outcome.outputs:
        return text
    bad = truth.disagreement(outcome.outputs)["o"]
    if not bad.any():
        return text
    *row, _ = np.argwhere(bad)[0]
    block = o.case.options["block_k"]
    tiles = sorted({int(key) // block for key in np.flatnonzero(bad[tuple(row)]) if key < o.case.sizes["N_k"]})
    return f"{text}; in row {row[-1]} the weights are wrong in key tile{'s' * (len(tiles) > 1)} {_list(tiles)}"


def _list(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:6])) + (" ..." if len(numbers) > 6 else "")
