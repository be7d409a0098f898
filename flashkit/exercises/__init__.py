"""The exercises of the course by id, such as ``03.causal``. One module a lab; :mod:`contract` says what they hold."""

from __future__ import annotations

from flashkit.exercises import flash_forward, start_here
from flashkit.exercises.contract import Case, Exercise, Fault

EXERCISES: dict[str, Exercise] = {e.id: e for lab in (start_here, flash_forward) for e in lab.EXERCISES}


def get(id: str) -> Exercise:
    """The exercise with this id; KeyError with the known ids when there is none."""
    if id not in EXERCISES:
        raise KeyError(f"no exercise {id!r}; there are {', '.join(EXERCISES)}")
    return EXERCISES[id]


__all__ = ["EXERCISES", "Case", "Exercise", "Fault", "get"]
