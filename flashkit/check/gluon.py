"""Judges a Gluon kernel without a GPU: the launches that its function would make are noted and compiled for Hopper."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from flashkit.check.compare import judge
from flashkit.check.cost import Target
from flashkit.check.diagnose import Observation
from flashkit.exercises.contract import Exercise
from flashkit.instruments import compile_gate
from flashkit.runtime.call import Call
from flashkit.runtime.runner import run

HOPPER = 90
ELSEWHERE = "needs a Hopper GPU (sm_90)"


def observe(exercise: Exercise, function: Callable, show: bool):
    """The call that failed, if it did, as an observation; else the compilations, and whether they are right is open."""
    outcome = run(function, dry_call(exercise), show=show)
    if outcome.problem:
        case = exercise.cases[0]
        return [Observation(case, judge(exercise, case), outcome)], []
    distinct = compile_gate.distinct(outcome.launches)
    return [], [compile_gate.start(launch, HOPPER, listing=True) for launch in distinct]


def runs_on(target: Target) -> bool:
    """Is there a GPU with the instructions of a Gluon kernel for Hopper? Elsewhere it is neither right nor wrong."""
    return bool(target.gpu) and target.arch == HOPPER


def dry_call(exercise: Exercise) -> Call:
    """The first case's call: its kernels are noted and not launched, and nothing that comes back is looked at."""
    return replace(exercise.call(exercise.cases[0]), dry=True, returns=())
