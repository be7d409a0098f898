"""Exercises whose answer is one exact number: a function of plain sizes, and named ways to get it wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from flashkit.exercises.contract import NUMBER, Case, Exercise, Fault
from flashkit.runtime.call import Call, Returned


def formula(
    id: str,
    answer: Callable[[Case], float],
    cases: tuple[Case, ...],
    faults: tuple[Fault, ...],
    draw: Callable[[int], tuple[Case, ...]],
    arguments: Callable[[Case], Mapping[str, object]] = lambda case: dict(case.sizes),
    returns: str = "bytes",
    **rest,
) -> Exercise:
    """``answer(case)`` is right; a fault's variants map the case's sizes to a wrong number.

    ``arguments`` are what the student's function is given, by keyword: the sizes themselves unless it says otherwise.
    """
    return Exercise(
        id=id,
        call=lambda case: Call({}, dict(arguments(case)), (Returned(returns, (), "number"),)),
        oracle=lambda case: {returns: np.array(float(answer(case)))},
        honest=lambda case: [],
        wrong=lambda case, variant: {returns: np.array(float(variant(**case.sizes)))},
        cases=tuple(replace(case, dtype="number") for case in cases),
        draw=lambda seed: tuple(replace(case, dtype="number") for case in draw(seed)),
        faults=faults,
        budget=lambda case: {},
        shares=NUMBER,
        **rest,
    )
